/** The item of the status bar. */
import { TextItem } from '@jupyterlab/statusbar';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import { meanActivity } from './devices.js';
import type { Model } from './model.js';
import { statusWords, type ITrans } from './words.js';

export class StatusItem extends ReactWidget {
  constructor(
    private _model: Model,
    private _trans: ITrans,
    private _open: () => void
  ) {
    super();
    this.addClass('jp-mod-highlighted');
  }

  protected render(): JSX.Element {
    return (
      <UseSignal signal={this._model.changed}>
        {() => (
          <TextItem
            source={hasDevice(this._model) ? this._words() : ''}
            title={this._trans.__('Open the GPU profiler')}
            role="button"
            tabIndex={0}
            onClick={this._open}
            onKeyDown={event => (event.key === 'Enter' || event.key === ' ') && this._open()}
          />
        )}
      </UseSignal>
    );
  }

  private _words(): string {
    const { devices, holders, passed_s } = this._model;
    return statusWords(holders?.holders ?? [], meanActivity(devices?.devices ?? []), passed_s, this._trans);
  }
}

/** Whether there is anything to say. */
export function hasDevice(model: Model): boolean {
  return !model.trouble && (model.devices?.devices.length ?? 0) > 0;
}
