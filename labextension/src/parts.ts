/** The parts of a step, and the runs of a notebook. */
import type { IEstimate, IMissing, IRun, IRunMark, IScalingMark } from './types.js';
import type { ITrans } from './words.js';

/** One measured part of the step. */
export interface IPart {
  key: string;
  share: number;
}

const ORDER = ['device_compute', 'exposed_communication', 'exposed_input', 'copies', 'host_gap'];
const BETWEEN = ['epoch_start', 'validation', 'checkpoint', 'other'];

/** The parts that have a number above zero, always in the same order. */
export function parts(shares: IRun['shares']): IPart[] {
  const between = (shares.between ?? {}) as Record<string, IEstimate | IMissing>;
  const all: [string, IEstimate | IMissing | undefined][] = [
    ...ORDER.map((key): [string, IEstimate | IMissing] => [key, shares[key] as IEstimate | IMissing]),
    ...BETWEEN.map((key): [string, IEstimate | IMissing] => [key, between[key]])
  ];
  return all.flatMap(([key, share]) => (share && 'value' in share && share.value > 0 ? [{ key, share: share.value }] : []));
}

/** The name of a part. On the host's clock compute is not told as the device's. */
export function partName(key: string, run: IRun, trans: ITrans): string {
  if (key === 'device_compute' && run.clock === 'host') {
    return run.device.kind === 'cpu' ? trans.__('compute (CPU)') : trans.__('compute (host clock)');
  }
  const names: Record<string, string> = {
    device_compute: trans.__('device compute'),
    exposed_communication: trans.__('communication'),
    exposed_input: trans.__('input wait'),
    copies: trans.__('copies'),
    host_gap: trans.__('host gap'),
    epoch_start: trans.__('epoch start'),
    validation: trans.__('validation'),
    checkpoint: trans.__('checkpoint'),
    other: trans.__('other host work')
  };
  return names[key] ?? key;
}

/** The verdict's label in the person's language. */
export function labelWords(label: string, trans: ITrans): string {
  const words: Record<string, string> = {
    'input-bound': trans.__('input-bound'),
    'host-bound': trans.__('host-bound'),
    'communication-bound': trans.__('communication-bound'),
    oversized: trans.__('oversized'),
    'correctly sized': trans.__('correctly sized'),
    'compute-bound': trans.__('compute-bound'),
    unclear: trans.__('unclear')
  };
  return words[label] ?? label;
}

/** What the outputs of a notebook tell of it. */
export interface IMarks {
  /** Newest first, each once. */
  runs: IRunMark[];
  /** The last one in the notebook. */
  scaling: IScalingMark | null;
}

/** Read the marks out of the metadata of a notebook's outputs, in the order of the notebook. */
export function readMarks(metadata: Iterable<unknown>): IMarks {
  const runs = new Map<string, IRunMark>();
  let scaling: IScalingMark | null = null;
  for (const data of metadata) {
    const mark = (data as any)?.jupyter_gpuprof;
    if (typeof mark?.run?.run_id === 'string') {
      runs.set(mark.run.run_id, mark.run);
    }
    if (Array.isArray(mark?.scaling?.points)) {
      scaling = mark.scaling;
    }
  }
  const byTime = [...runs.values()].sort((a, b) => (a.started_at < b.started_at ? 1 : a.started_at > b.started_at ? -1 : 0));
  return { runs: byTime, scaling };
}

/** What to type to try a remedy, "" where it cannot be tried for the person. */
export function tryLine(setting: string): string {
  return setting ? `%gpuprof try ${setting}` : '';
}
