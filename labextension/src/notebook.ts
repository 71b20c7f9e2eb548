/** The notebook in front: the runs that its outputs tell of. */
import type { IOutput } from '@jupyterlab/nbformat';
import { NotebookActions, type INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';

import { Api } from './api.js';
import { readMarks, type IMarks } from './parts.js';
import type { IRun } from './types.js';

/** Follows the notebook in front and asks the server for its last run when a cell has ended. */
export class NotebookRuns {
  readonly changed = new Signal<this, void>(this);
  path = '';
  marks: IMarks = { runs: [], scaling: null };
  /** The last run; null while it is fetched, or where this server does not have it. */
  run: IRun | null = null;
  /** Whether the last run was asked for in vain. */
  absent = false;

  constructor(
    private _tracker: INotebookTracker,
    private _api: Api
  ) {
    _tracker.currentChanged.connect((_, panel) => {
      void this._read(panel);
      void panel?.context.ready.then(() => this._read(this._tracker.currentWidget));
    });
    NotebookActions.executed.connect((_, { notebook }) => {
      const panel = this._tracker.currentWidget;
      if (panel?.content === notebook) {
        void this._read(panel);
      }
    });
    void this._read(_tracker.currentWidget);
  }

  private async _read(panel: NotebookPanel | null): Promise<void> {
    this.path = panel?.context.path ?? '';
    this.marks = readMarks(metadataOf(panel));
    const wanted = this.marks.runs[0]?.run_id;
    if (this.run?.run_id !== wanted) {
      this.run = null;
      this.absent = false;
    }
    this.changed.emit();
    if (!wanted || this.run) {
      return;
    }
    const run = await this._api.run(wanted).catch(() => null);
    if (this.marks.runs[0]?.run_id === wanted) {
      this.run = run;
      this.absent = run === null;
      this.changed.emit();
    }
  }
}

function* metadataOf(panel: NotebookPanel | null): Iterable<unknown> {
  for (const cell of panel?.content.model?.cells ?? []) {
    if (cell.type === 'code') {
      for (const output of (cell.toJSON().outputs ?? []) as IOutput[]) {
        yield output.metadata;
      }
    }
  }
}
