/** The requests. The token travels in a header, never in a URL. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { IAuditRow, IDevices, IHolders, IKept, ILedger, IReleased, IRun, IStatus } from './types.js';

/** What can be wrong with the server, each told in its own words. */
export type Trouble = 'unreachable' | 'not installed' | 'not allowed' | 'failed';

/** A request that did not go well. */
export class ApiError extends Error {
  constructor(
    readonly trouble: Trouble,
    message: string
  ) {
    super(message);
  }
}

/** The REST API of jupyter_gpuprof's server extension. */
export class Api {
  constructor(private _settings: ServerConnection.ISettings) {}

  devices = (): Promise<IDevices> => this._ask('devices');
  holders = (): Promise<IHolders> => this._ask('holders');
  status = (): Promise<IStatus> => this._ask('status');
  audit = async (): Promise<IAuditRow[]> => (await this._ask<{ rows: IAuditRow[] }>('audit?limit=5')).rows;
  run = (id: string): Promise<IRun> => this._ask(`runs/${encodeURIComponent(id)}`);
  ledger = (since_s: number): Promise<ILedger> => this._ask(`ledger?by=notebook&since_s=${Math.ceil(since_s)}`);
  keep = (id: string, hours: number): Promise<IKept> => this._ask(`holders/${encodeURIComponent(id)}/keep`, { hours });
  release = (id: string, action: string): Promise<IReleased> =>
    this._ask(`holders/${encodeURIComponent(id)}/release`, { action });
  endOrphan = (id: string): Promise<IReleased> => this._ask(`orphans/${encodeURIComponent(id)}/end`, {});

  private async _ask<T>(path: string, body?: object): Promise<T> {
    const url = URLExt.join(this._settings.baseUrl, 'gpuprof/api/v1', path);
    const init: RequestInit = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this._settings);
    } catch (error) {
      throw new ApiError('unreachable', String(error));
    }
    const answer = await response.json().catch(() => null);
    if (response.ok && answer !== null) {
      return answer;
    }
    const said = answer?.error;
    if (response.status === 404 && !said) {
      throw new ApiError('not installed', response.statusText);
    }
    const trouble = response.status === 401 || response.status === 403 ? 'not allowed' : 'failed';
    throw new ApiError(trouble, said ? [said.message, said.hint].filter(Boolean).join(' ') : response.statusText);
  }
}
