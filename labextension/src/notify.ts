/** A notice with actions before something is taken from a notebook: one per kernel, updated and not repeated. */
import { Notification } from '@jupyterlab/apputils';

import type { Actions } from './actions.js';
import type { Model } from './model.js';
import { planNotices } from './notices.js';
import type { IHolder } from './types.js';
import { noticeWords, type ITrans } from './words.js';

export class Notices {
  enabled = true;
  /** The notice of each kernel, and what it says. */
  private _open = new Map<string, { notice: string; words: string }>();

  constructor(
    private _model: Model,
    private _actions: Actions,
    private _trans: ITrans
  ) {
    _model.changed.connect(() => this._update());
  }

  private _update(): void {
    const { holders, status, trouble } = this._model;
    if (!holders || !status || trouble) {
      return;
    }
    const wanted = this.enabled ? holders.holders : [];
    const plan = planNotices(wanted, new Set(this._open.keys()), status.reaper.warn_before_s);
    for (const holder of plan.show) {
      const words = noticeWords(holder, this._trans);
      this._open.set(holder.holder_id, { notice: Notification.warning(words, this._options(holder)), words });
    }
    for (const holder of plan.update) {
      const open = this._open.get(holder.holder_id)!;
      const words = noticeWords(holder, this._trans);
      // A screen reader says what changes. Where the person closed the notice, nothing is updated.
      if (words !== open.words) {
        Notification.update({ id: open.notice, message: words, ...this._options(holder) });
        open.words = words;
      }
    }
    for (const id of plan.dismiss) {
      Notification.dismiss(this._open.get(id)!.notice);
      this._open.delete(id);
    }
  }

  private _options(holder: IHolder): Notification.IOptions<any> {
    const trans = this._trans;
    return {
      autoClose: false,
      actions: [
        { label: trans.__('Keep 1 h'), callback: () => void this._actions.keep(holder) },
        { label: trans.__('Release now …'), callback: () => void this._actions.release(holder), displayType: 'warn' }
      ]
    };
  }
}
