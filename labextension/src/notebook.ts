/** The notebook in front: the runs that its outputs tell of. */
import type { IOutput } from '@jupyterlab/nbformat';
import { NotebookActions, type INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';

import { ApiError } from './api.js';
import type { Model } from './model.js';
import { readMarks, type IMarks } from './parts.js';
import type { IRun } from './types.js';

/** Follows the notebook in front and asks the server for its last run when a cell has ended. */
export class NotebookRuns {
  readonly changed = new Signal<this, void>(this);
  path = '';
  marks: IMarks = { runs: [], scaling: null };
  /** The last run; null while it is fetched, or where this server does not have it. */
  run: IRun | null = null;
  /** Whether the server has no such run. */
  absent = false;

  private _asking = false;

  constructor(
    private _tracker: INotebookTracker,
    private _model: Model
  ) {
    _tracker.currentChanged.connect((_, panel) => {
      this._read(panel);
      void panel?.context.ready.then(() => this._read(this._tracker.currentWidget));
    });
    NotebookActions.executed.connect((_, { notebook }) => {
      const panel = this._tracker.currentWidget;
      if (panel?.content === notebook) {
        this._read(panel);
      }
    });
    _model.changed.connect(() => void this._ask()); // again, where the server did not answer
    this._read(_tracker.currentWidget);
  }

  private get _wanted(): string | undefined {
    return this.marks.runs[0]?.run_id;
  }

  private _read(panel: NotebookPanel | null): void {
    this.path = panel?.context.path ?? '';
    this.marks = readMarks(metadataOf(panel));
    if (this.run?.run_id !== this._wanted) {
      this.run = null;
      this.absent = false;
    }
    this.changed.emit();
    void this._ask();
  }

  private async _ask(): Promise<void> {
    const wanted = this._wanted;
    if (!wanted || this.run || this.absent || this._asking || this._model.trouble) {
      return;
    }
    this._asking = true;
    let [run, absent]: [IRun | null, boolean] = [null, false];
    try {
      run = await this._model.api.run(wanted);
    } catch (error) {
      absent = error instanceof ApiError && error.trouble === 'failed';
    }
    this._asking = false;
    if (this._wanted === wanted) {
      [this.run, this.absent] = [run, absent];
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
