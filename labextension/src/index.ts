/** The plugins: the model, the panel, and what else shows something of it. */
import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRunningSessionManagers } from '@jupyterlab/running';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { refreshIcon } from '@jupyterlab/ui-components';
import { Token } from '@lumino/coreutils';

import { Actions } from './actions.js';
import { Api } from './api.js';
import { gpuIcon } from './icons.js';
import { Model } from './model.js';
import { NotebookRuns } from './notebook.js';
import { Notices } from './notify.js';
import { GpuPanel, PANEL_ID } from './panel/panel.js';
import { runningManager } from './running.js';
import { hasDevice, StatusItem } from './status.js';
import type { IHolder } from './types.js';
import type { ITrans } from './words.js';

const SETTINGS = 'jupyter-gpuprof:plugin';

/** Commands, for the palette, menus and shortcuts. */
export namespace CommandIDs {
  export const open = 'gpuprof:open';
  export const refresh = 'gpuprof:refresh';
  export const keep = 'gpuprof:keep';
  export const release = 'gpuprof:release';
}

interface ICore {
  model: Model;
  actions: Actions;
  trans: ITrans;
}
const ICoreToken = new Token<ICore>('jupyter-gpuprof:ICore');

const core: JupyterFrontEndPlugin<ICore> = {
  id: 'jupyter-gpuprof:core',
  description: 'Asks the server who holds the devices.',
  autoStart: true,
  provides: ICoreToken,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null): ICore => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpuprof');
    const model = new Model(new Api(app.serviceManager.serverSettings));
    void app.restored.then(() => model.start());
    return { model, actions: new Actions(model, app.commands, trans), trans };
  }
};

const panel: JupyterFrontEndPlugin<void> = {
  id: SETTINGS,
  description: 'The panel, the status bar item, the notices and the commands.',
  autoStart: true,
  requires: [ICoreToken],
  optional: [
    INotebookTracker,
    ISettingRegistry,
    ILayoutRestorer,
    ICommandPalette,
    IStatusBar,
    IRunningSessionManagers,
    ILabShell
  ],
  activate: async (
    app: JupyterFrontEnd,
    { model, actions, trans }: ICore,
    tracker: INotebookTracker | null,
    registry: ISettingRegistry | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    statusBar: IStatusBar | null,
    running: IRunningSessionManagers | null
  ): Promise<void> => {
    const runs = tracker && new NotebookRuns(tracker, model);
    const widget = new GpuPanel({ model, actions, runs, trans });
    const notices = new Notices(model, actions, trans);
    let side = '';
    let showStatus = true;

    const place = () => {
      if (![...app.shell.widgets(side)].includes(widget)) {
        const shown = widget.isVisible;
        app.shell.add(widget, side, { rank: 900, type: 'GPU profiler' });
        if (shown) {
          app.shell.activateById(PANEL_ID);
        }
      }
    };

    const apply = (settings?: ISettingRegistry.ISettings) => {
      const value = <T>(key: string, usual: T) => (settings?.composite[key] ?? usual) as T;
      side = value('side', 'right');
      place();
      showStatus = value('showStatus', true);
      notices.enabled = value('notify', true);
      model.refresh_s = value('refreshSeconds', 2);
      model.watching = showStatus || notices.enabled;
      model.changed.emit();
    };
    // Awaited: the layout is restored after the plugins are there, and it must find the panel on its side.
    const settings = await registry?.load(SETTINGS).catch(() => undefined);
    apply(settings);
    settings?.changed.connect(apply);
    restorer?.add(widget, PANEL_ID);
    void app.restored.then(place); // the layout that was saved may have it on the other side
    running?.add(runningManager(model, actions, trans));

    const open = () => app.shell.activateById(PANEL_ID);
    statusBar?.registerStatusItem('jupyter-gpuprof:status', {
      item: new StatusItem(model, trans, open),
      align: 'right',
      rank: 90,
      isActive: () => showStatus && hasDevice(model),
      activeStateChanged: model.changed
    });

    /** The holder of a command's arguments, or of the notebook in front. */
    const holderOf = (args: any): IHolder | undefined =>
      model.holders?.holders.find(h => (args.id ? h.holder_id === args.id : !!runs?.path && h.path === runs.path));
    const about = { type: 'object', properties: { id: { type: 'string', description: 'The id of a kernel; else the notebook in front.' } } };
    const { commands } = app;
    commands.addCommand(CommandIDs.open, {
      label: trans.__('Show the GPU Profiler'),
      icon: gpuIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: open
    });
    commands.addCommand(CommandIDs.refresh, {
      label: trans.__('Ask for Devices and Holders Now'),
      icon: refreshIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => model.refresh()
    });
    commands.addCommand(CommandIDs.keep, {
      label: trans.__('Keep This Notebook’s Device for 1 h'),
      describedBy: { args: about },
      isEnabled: args => !!holderOf(args),
      execute: args => actions.keep(holderOf(args)!)
    });
    commands.addCommand(CommandIDs.release, {
      label: trans.__('Release This Notebook’s Device …'),
      describedBy: { args: about },
      isEnabled: args => !!holderOf(args),
      execute: args => actions.release(holderOf(args)!)
    });
    for (const command of Object.values(CommandIDs)) {
      palette?.addItem({ command, category: trans.__('GPU profiler') });
    }
    const refreshEnabled = () => [CommandIDs.keep, CommandIDs.release].forEach(id => commands.notifyCommandChanged(id));
    model.changed.connect(refreshEnabled);
    runs?.changed.connect(refreshEnabled);
  }
};

export default [core, panel];
