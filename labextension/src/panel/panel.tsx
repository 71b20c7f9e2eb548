/** The panel: one widget in a sidebar, the sections below each other. */
import { ReactWidget, refreshIcon, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Panel } from '@lumino/widgets';
import * as React from 'react';

import { gpuIcon } from '../icons.js';
import { Shared, type IShared, useShared } from './context.js';
import { Devices } from './devices.js';
import { Holders } from './holders.js';
import { Hours } from './hours.js';
import { Reaper } from './reaper.js';
import { ThisNotebook } from './verdict.js';

export const PANEL_ID = 'jupyter-gpuprof-panel';

export class GpuPanel extends Panel {
  constructor(private _shared: IShared) {
    super();
    const { trans } = _shared;
    this.id = PANEL_ID;
    this.addClass('jp-gpupanel-panel');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU profiler');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU profiler'));
    const body = ReactWidget.create(<Body shared={_shared} />);
    body.addClass('jp-gpupanel-scroll');
    this.addWidget(body);
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._shared.model.visible = true;
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this._shared.model.visible = this.isVisible;
  }

  protected onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this._shared.model.visible = false;
  }

  protected onBeforeDetach(msg: Message): void {
    super.onBeforeDetach(msg);
    this._shared.model.visible = false;
  }
}

function Body({ shared }: { shared: IShared }): JSX.Element {
  return (
    <Shared.Provider value={shared}>
      <UseSignal signal={shared.model.changed}>
        {() => (
          <div className="jp-gpupanel-body">
            <Header />
            <Trouble />
            <Devices />
            <Holders />
            {shared.runs && <UseSignal signal={shared.runs.changed}>{() => <ThisNotebook />}</UseSignal>}
            <Hours />
            <Reaper />
          </div>
        )}
      </UseSignal>
    </Shared.Provider>
  );
}

function Header(): JSX.Element {
  const { model, trans } = useShared();
  const ask = trans.__('Ask the server now');
  return (
    <header className="jp-gpupanel-header">
      {trans.__('GPU profiler')}
      <button type="button" className="jp-gpupanel-icon" aria-label={ask} title={ask} onClick={() => void model.refresh()}>
        <refreshIcon.react tag="span" width="16px" height="16px" />
      </button>
    </header>
  );
}

/** What is wrong with the server. What was known stays on the page, told to be old. */
function Trouble(): JSX.Element {
  const { model, trans } = useShared();
  const words = {
    unreachable: trans.__('The server does not answer. What you see is old. Trying again.'),
    'not installed': trans.__(
      'jupyter_gpuprof’s server extension does not answer. Install jupyter_gpuprof where the Jupyter server runs, and restart it.'
    ),
    'not allowed': trans.__('The server does not let you see this. Log in again.'),
    failed: trans.__('The server answers with an error: %1', model.trouble?.message ?? '')
  };
  return (
    <div role="status" className="jp-gpupanel-trouble">
      {model.trouble ? words[model.trouble.trouble] : ''}
    </div>
  );
}
