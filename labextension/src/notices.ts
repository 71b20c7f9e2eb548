/** Which holders a person is to be told about: one notice per kernel, updated and not repeated. */
import type { IHolder } from './types.js';
import { known, takes } from './words.js';

/** What to do with the notices now. */
export interface INoticePlan {
  show: IHolder[];
  update: IHolder[];
  dismiss: string[];
}

/** Whether something is about to be taken from a holder, or it was just warned. */
export function pressing(holder: IHolder, warn_before_s: number): boolean {
  const { next_action, due_in_s, acting, action, dry_run } = holder.reaper;
  if (!holder.holds || dry_run || (holder.keep?.until_in_s ?? 0) > 0) {
    return false;
  }
  const due = known(due_in_s);
  return takes(acting) || action === 'warn' || (takes(next_action) && due !== undefined && due <= warn_before_s);
}

/**
 * Compare what is shown with what should be.
 *
 * @param shown ids of holders with an open notice, or whose notice was closed by the person while it still holds.
 */
export function planNotices(holders: IHolder[], shown: ReadonlySet<string>, warn_before_s: number): INoticePlan {
  const now = holders.filter(h => pressing(h, warn_before_s));
  const ids = new Set(now.map(h => h.holder_id));
  return {
    show: now.filter(h => !shown.has(h.holder_id)),
    update: now.filter(h => shown.has(h.holder_id)),
    dismiss: [...shown].filter(id => !ids.has(id))
  };
}
