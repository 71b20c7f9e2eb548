/** What a person can do about a holder. Each asks first where something could be lost. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { CommandRegistry } from '@lumino/commands';

import { ApiError } from './api.js';
import type { Model } from './model.js';
import type { IHolder, IOrphan, IReleased } from './types.js';
import { bytes, duration, holderName, type ITrans } from './words.js';

export const KEEP_HOURS = 1;

/** How something ended that a person asked for. */
interface IOutcome {
  done: boolean;
  words: string;
}

/** "released" and "done" are what was asked for; every other outcome is not. */
function said(answer: IReleased): IOutcome {
  return { done: answer.outcome === 'released' || answer.outcome === 'done', words: answer.sentence };
}

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
    const trans = this._trans;
    await this._do(async () => {
      const { granted_s } = await this._model.api.keep(holder.holder_id, KEEP_HOURS);
      return { done: true, words: trans.__('%1 is kept for %2.', holderName(holder, trans), duration(granted_s, trans)) };
    });
  }

  /** Keep a kernel no longer. A keep that was made in the notebook itself stays. */
  async endKeep(holder: IHolder): Promise<void> {
    const trans = this._trans;
    const name = holderName(holder, trans);
    await this._do(async () => {
      const { ended, keep } = await this._model.api.keep(holder.holder_id, 0);
      return ended
        ? { done: true, words: trans.__('%1 is kept no longer.', name) }
        : {
            done: false,
            words: trans.__(
              '%1 is still kept for %2: the notebook itself asked for that, and only %gpuprof keep off in it ends it.',
              name,
              duration(keep?.until_in_s ?? 0, trans)
            )
          };
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
      await this._do(async () => said(await this._model.api.release(holder.holder_id, action)));
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
      await this._do(async () => said(await this._model.api.endOrphan(orphan.orphan_id)));
    }
  }

  /** What was not done stays on the page until the person has read it. */
  private async _do(what: () => Promise<IOutcome>): Promise<void> {
    try {
      const { done, words } = await what();
      if (done) {
        Notification.info(words, { autoClose: 5000 });
      } else {
        Notification.warning(words, { autoClose: false });
      }
    } catch (error) {
      const words = error instanceof ApiError && error.trouble !== 'unreachable' ? error.message : '';
      Notification.error(words || this._trans.__('The server does not answer. Nothing was done.'), { autoClose: false });
    }
    await this._model.refresh();
  }
}
