/** What the panel knows, and when it asks for more. */
import { Poll } from '@lumino/polling';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { Api, ApiError } from './api.js';
import { activity, remember, type ISample } from './devices.js';
import type { IAuditRow, IDevices, IHolders, ILedger, IStatus } from './types.js';

/** While the panel is hidden, only the status bar and the notices look, and this often. */
const WATCH_MS = 30_000;
/** Slow things: the ledger, the policy, the audit. */
const SLOW_MS = 60_000;
const DAY_S = 86_400;

/** The GPU-hours of two stretches. */
export interface IHours {
  today: ILedger;
  week: ILedger;
}

/**
 * One model for all who show something of the server.
 *
 * Two polls: `_live` while the panel is in sight, and `_watch` for the status bar and the notices. Both sleep
 * while the page is hidden, and slow down while the server does not answer.
 */
export class Model implements IDisposable {
  readonly changed = new Signal<this, void>(this);
  devices: IDevices | null = null;
  holders: IHolders | null = null;
  status: IStatus | null = null;
  audit: IAuditRow[] | null = null;
  /** Null where the ledger cannot be read. */
  hours: IHours | null | undefined = undefined;
  trouble: ApiError | null = null;
  /** When the last answer about holders came, in milliseconds. */
  answeredAt = 0;
  isDisposed = false;

  private _live: Poll;
  private _watch: Poll;
  private _history = new Map<string, ISample[]>();
  private _visible = false;
  private _watching = true;
  private _slowAt = -Infinity;

  constructor(readonly api: Api) {
    const backoff = { backoff: true, max: 60_000 };
    this._live = new Poll({
      auto: false,
      name: 'jupyter-gpuprof:live',
      factory: () => this._look(true),
      frequency: { interval: 2000, ...backoff },
      standby: () => (document.hidden || !this._visible ? true : 'never')
    });
    this._watch = new Poll({
      auto: false,
      name: 'jupyter-gpuprof:watch',
      factory: () => this._look(false),
      frequency: { interval: WATCH_MS, ...backoff },
      standby: () => (document.hidden || this._visible || !this._watching ? true : 'never')
    });
    document.addEventListener('visibilitychange', this._wake);
  }

  /** Begin to look. */
  start(): void {
    void this._live.start();
    void this._watch.start();
  }

  /** How often the panel looks while it is in sight, in seconds; never more often than once a second. */
  set refresh_s(value: number) {
    this._live.frequency = { ...this._live.frequency, interval: 1000 * Math.max(1, value) };
  }

  /** Whether somebody wants to know while the panel is hidden. */
  set watching(value: boolean) {
    this._watching = value;
  }

  /** Whether the panel is in sight. */
  get visible(): boolean {
    return this._visible;
  }
  set visible(value: boolean) {
    if (this._visible !== value) {
      this._visible = value;
      this._wake();
    }
  }

  /** How old the answer is, in seconds: countdowns go on between two answers. */
  get passed_s(): number {
    return this.answeredAt ? (Date.now() - this.answeredAt) / 1000 : 0;
  }

  /** The last minutes of a device. */
  history(uuid: string): readonly ISample[] {
    return this._history.get(uuid) ?? [];
  }

  /** Look now, at everything. */
  async refresh(): Promise<void> {
    this._slowAt = -Infinity;
    await this._live.refresh();
  }

  dispose(): void {
    if (!this.isDisposed) {
      this.isDisposed = true;
      document.removeEventListener('visibilitychange', this._wake);
      this._live.dispose();
      this._watch.dispose();
      Signal.clearData(this);
    }
  }

  private _wake = (): void => {
    if (!document.hidden && this._visible && this._live.state.phase !== 'constructed') {
      void this._live.refresh();
    }
  };

  /** One look. It throws where the server does not answer, so that the poll backs off. */
  private async _look(all: boolean): Promise<void> {
    try {
      const [devices, holders] = await Promise.all([this.api.devices(), this.api.holders()]);
      const at = Date.now();
      this.devices = devices;
      this.holders = holders;
      this.answeredAt = at;
      for (const device of devices.devices) {
        this._history.set(device.uuid, remember(this.history(device.uuid), { at, ratio: activity(device) }));
      }
      if ((all || !this.status) && at - this._slowAt > SLOW_MS) {
        this._slowAt = at;
        await this._lookSlowly(all);
      }
      this.trouble = null;
    } catch (error) {
      this.trouble = error instanceof ApiError ? error : new ApiError('failed', String(error));
      throw error;
    } finally {
      if (!this.isDisposed) {
        this.changed.emit();
      }
    }
  }

  /** What changes slowly. A ledger that cannot be read must not hide the devices. */
  private async _lookSlowly(all: boolean): Promise<void> {
    this.status = await this.api.status();
    if (!all) {
      this._slowAt = -Infinity;
      return;
    }
    const midnight = new Date().setHours(0, 0, 0, 0);
    const [audit, today, week] = await Promise.allSettled([
      this.api.audit(),
      this.api.ledger(Math.max(1, (Date.now() - midnight) / 1000)),
      this.api.ledger(7 * DAY_S)
    ]);
    this.audit = audit.status === 'fulfilled' ? audit.value : null;
    this.hours = today.status === 'fulfilled' && week.status === 'fulfilled' ? { today: today.value, week: week.value } : null;
  }
}
