/** What a person can do about a holder. Each asks first where something could be lost. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';

import { ApiError } from './api.js';
import type { Model } from './model.js';
import type { IHolder, IOrphan } from './types.js';
import { bytes, holderName, type ITrans } from './words.js';

export const KEEP_HOURS = 1;

export class Actions {
  constructor(
    private _model: Model,
    private _commands: CommandRegistry,
    private _trans: ITrans
  ) {}

  /** Show the notebook of a holder. */
  async openNotebook(path: string): Promise<void> {
    if (path) {
      await this._commands.execute('docmanager:open', { path });
    }
  }

  /** Leave a kernel alone for an hour. */
  async keep(holder: IHolder): Promise<void> {
    await this._do(async () => {
      await this._model.api.keep(holder.holder_id, KEEP_HOURS);
      return this._trans.__('%1 is kept for %2 h.', holderName(holder, this._trans), KEEP_HOURS);
    });
  }

  /** Free the device of a holder, in the way that the person chooses. */
  async release(holder: IHolder): Promise<void> {
    const trans = this._trans;
    const name = holderName(holder, trans);
    const { button } = await showDialog({
      title: trans.__('Release the device that %1 holds?', name),
      body: trans.__(
        'It holds %1. Freeing returns unused memory and keeps all variables. Moving puts its tensors into host memory until its next cell. Shutting down loses its variables.',
        bytes(holder.held_bytes, trans)
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Cancel') }),
        Dialog.warnButton({ label: trans.__('Shut down'), actions: ['shutdown'] }),
        Dialog.okButton({ label: trans.__('Move'), actions: ['offload'] }),
        Dialog.okButton({ label: trans.__('Free'), actions: ['free'] })
      ]
    });
    const [action] = button.actions;
    if (button.accept && action) {
      await this._do(async () => (await this._model.api.release(holder.holder_id, action)).sentence);
    }
  }

  /** End what is left of a dead kernel. */
  async endOrphan(orphan: IOrphan): Promise<void> {
    const trans = this._trans;
    const { button } = await showDialog({
      title: trans.__('End process %1?', orphan.pid),
      body: trans.__(
        'It is left of a kernel that is gone (%1), and holds %2.',
        holderName(orphan, trans),
        bytes(orphan.held_bytes, trans)
      ),
      buttons: [Dialog.cancelButton({ label: trans.__('Cancel') }), Dialog.warnButton({ label: trans.__('End') })]
    });
    if (button.accept) {
      await this._do(async () => (await this._model.api.endOrphan(orphan.orphan_id)).sentence);
    }
  }

  private async _do(what: () => Promise<string>): Promise<void> {
    try {
      Notification.info(await what(), { autoClose: 5000 });
    } catch (error) {
      const words = error instanceof ApiError && error.trouble !== 'unreachable' ? error.message : '';
      Notification.error(words || this._trans.__('The server does not answer. Nothing was done.'), { autoClose: 8000 });
    }
    await this._model.refresh();
  }
}
