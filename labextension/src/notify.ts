/** A notice with actions before something is taken from a notebook: one per kernel, updated and not repeated. */
import { Notification } from '@jupyterlab/apputils';

import type { Actions } from './actions.js';
import type { Model } from './model.js';
import { planNotices } from './notices.js';
import type { IHolder } from './types.js';
import { actionWords, duration, holderName, known, takes, type ITrans } from './words.js';

export class Notices {
  enabled = true;
  private _ids = new Map<string, string>();

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
    const plan = planNotices(wanted, new Set(this._ids.keys()), status.reaper.warn_before_s);
    for (const holder of plan.show) {
      this._ids.set(holder.holder_id, Notification.warning(this._words(holder), this._options(holder)));
    }
    for (const holder of plan.update) {
      // A notice that the person closed is not there any more; updating it does nothing.
      Notification.update({ id: this._ids.get(holder.holder_id)!, message: this._words(holder), ...this._options(holder) });
    }
    for (const id of plan.dismiss) {
      Notification.dismiss(this._ids.get(id));
      this._ids.delete(id);
    }
  }

  private _words(holder: IHolder): string {
    const trans = this._trans;
    const name = holderName(holder, trans);
    const { next_action, due_in_s, idle_s } = holder.reaper;
    const [due, idle] = [known(due_in_s), known(idle_s)];
    const since = idle === undefined ? trans.__('is idle') : trans.__('has been idle for %1', duration(idle, trans));
    return takes(next_action) && due !== undefined
      ? trans.__('%1 %2 and holds a device: %3 in %4.', name, since, actionWords(next_action, trans), duration(due, trans))
      : trans.__('%1 %2 and holds a device.', name, since);
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
