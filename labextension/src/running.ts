/** Our entries in JupyterLab's list of what is running. */
import type { IRunningSessions } from '@jupyterlab/running';

import type { Actions } from './actions.js';
import { gpuIcon } from './icons.js';
import type { Model } from './model.js';
import { bytes, holderName, stateWords, type ITrans } from './words.js';

/** One entry for each holder of a device; shutting one down asks how to release it. */
export function runningManager(model: Model, actions: Actions, trans: ITrans): IRunningSessions.IManager {
  const holders = () => model.holders?.holders.filter(h => h.holds) ?? [];
  return {
    name: trans.__('GPU holders'),
    running: () => [
      ...holders().map(holder => ({
        open: () => void actions.openNotebook(holder.path),
        shutdown: () => void actions.release(holder),
        icon: () => gpuIcon,
        label: () => holderName(holder, trans),
        labelTitle: () => holder.path,
        detail: () => `${bytes(holder.held_bytes, trans)} · ${stateWords(holder.state, trans)}`
      })),
      ...(model.holders?.orphans ?? []).map(orphan => ({
        open: () => undefined,
        shutdown: () => void actions.endOrphan(orphan),
        icon: () => gpuIcon,
        label: () => (orphan.path ? holderName(orphan, trans) : trans.__('process %1', orphan.pid)),
        detail: () => `${bytes(orphan.held_bytes, trans)} · ${trans.__('orphan')}`
      }))
    ],
    shutdownAll: () => {
      for (const holder of holders()) {
        void actions.release(holder);
      }
    },
    refreshRunning: () => void model.refresh(),
    runningChanged: model.changed,
    shutdownLabel: trans.__('Release'),
    shutdownAllLabel: trans.__('Release all'),
    shutdownAllConfirmationText: trans.__('Each is asked for by itself. Go on?')
  };
}
