/** How busy devices are, now and in the last minutes. */
import type { IDevice } from './types.js';
import { known } from './words.js';

/** The activity of a device now: the counter that tells most, undefined where none can be read. */
export function activity(device: IDevice): number | undefined {
  if (device.state !== 'ok' || device.mig) {
    return undefined;
  }
  const active = 'active_ratio' in device.gpm ? known(device.gpm.active_ratio) : undefined;
  return active ?? known(device.utilisation_ratio);
}

/** The mean activity of those devices that have one. */
export function meanActivity(devices: IDevice[]): number | undefined {
  const ratios = devices.map(activity).filter((r): r is number => r !== undefined);
  return ratios.length ? ratios.reduce((a, b) => a + b, 0) / ratios.length : undefined;
}

/** One look at a device: when (milliseconds), and its activity. */
export interface ISample {
  at: number;
  ratio: number | undefined;
}

/** How far back the small curve goes. */
export const SPAN_MS = 5 * 60_000;
/** A gap longer than this is not bridged: nobody looked. */
export const GAP_MS = 30_000;

/** The samples with a new one, without those that are too old. */
export function remember(samples: readonly ISample[], sample: ISample): ISample[] {
  return [...samples, sample].filter(s => sample.at - s.at <= SPAN_MS);
}

/** The curve as lines in a box of 100 × 20, the newest sample at the right; gaps stay gaps. */
export function sparkline(samples: readonly ISample[], now: number): string {
  let path = '';
  let last: ISample | undefined;
  for (const sample of samples) {
    if (sample.ratio === undefined) {
      last = undefined;
      continue;
    }
    const x = 100 * (1 - (now - sample.at) / SPAN_MS);
    const y = 19 - 18 * Math.min(1, Math.max(0, sample.ratio));
    const joined = last !== undefined && sample.at - last.at <= GAP_MS;
    path += `${joined ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
    last = sample;
  }
  return path;
}
