/** Numbers and states in words. Nothing here knows the page or the server, so that Node alone can test it. */
import type { IDecision, IEstimate, IHolder, IMissing, IPolicy, Reading } from './types.js';

/** The part of a translation bundle that is used: `%1` stands for the first argument. */
export interface ITrans {
  __(message: string, ...args: any[]): string;
  _n(one: string, many: string, n: number, ...args: any[]): string;
}

const KIB = 1024;
const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** The number, or undefined where there is none. */
export function known(reading: Reading | IEstimate | null | undefined): number | undefined {
  const value = typeof reading === 'object' && reading !== null && 'value' in reading ? reading.value : reading;
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

/** Why there is no number, "" where there is one. */
export function why(reading: Reading | IEstimate | null | undefined): string {
  return typeof reading === 'object' && reading !== null ? (reading as IMissing).missing ?? '' : '';
}

/** Bytes in three digits. */
export function bytes(reading: Reading | undefined, trans: ITrans): string {
  let value = known(reading);
  if (value === undefined) {
    return trans.__('n/a');
  }
  let unit = 0;
  while (value >= 999.5 && unit < SIZES.length - 1) {
    value /= KIB;
    unit += 1;
  }
  return `${value.toFixed(unit === 0 || value >= 99.95 ? 0 : 1)} ${SIZES[unit]}`;
}

/** A ratio of 0 to 1 as whole percent. */
export function percent(reading: Reading | IEstimate | undefined, trans: ITrans): string {
  const value = known(reading);
  if (value === undefined) {
    return trans.__('n/a');
  }
  return value > 0 && value < 0.005 ? '<1 %' : `${Math.round(100 * value)} %`;
}

/** A stretch of time to read at a glance: the largest unit, and the next one where it says something. */
export function duration(seconds: number, trans: ITrans): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) {
    return trans.__('%1 s', s);
  }
  const minutes = Math.floor(s / 60);
  if (minutes < 120 && minutes !== 60) {
    return trans.__('%1 min', minutes);
  }
  const hours = Math.floor(minutes / 60);
  if (hours >= 48) {
    return trans.__('%1 d %2 h', Math.floor(hours / 24), hours % 24);
  }
  return minutes % 60 ? trans.__('%1 h %2 min', hours, minutes % 60) : trans.__('%1 h', hours);
}

/** What is left, to the second below an hour: `4:05`, `1:02:03`. */
export function countdown(seconds: number): string {
  const s = Math.max(0, Math.ceil(seconds));
  const two = (n: number) => String(n).padStart(2, '0');
  const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
  return h > 0 ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

/** Seconds of devices as GPU-hours. */
export function gpuHours(seconds: number): string {
  const hours = seconds / 3600;
  return hours >= 99.95 ? hours.toFixed(0) : hours >= 9.995 ? hours.toFixed(1) : hours.toFixed(2);
}

/** How long a step takes. */
export function stepTime(reading: Reading, trans: ITrans): string {
  const s = known(reading);
  if (s === undefined) {
    return trans.__('n/a');
  }
  return s >= 1 ? `${s.toFixed(2)} s` : `${(1000 * s).toFixed(s < 0.01 ? 2 : 1)} ms`;
}

/** The state of a holder, from the server's word for it; an unknown word is shown as it is. */
export function stateWords(state: string, trans: ITrans): string {
  const words: Record<string, string> = {
    training: trans.__('training'),
    'running a cell': trans.__('running a cell'),
    'waiting for input': trans.__('waiting for input'),
    'background work': trans.__('working in the background'),
    idle: trans.__('idle'),
    'finished and holding': trans.__('finished, still holding'),
    starting: trans.__('starting'),
    remote: trans.__('on another machine'),
    unknown: trans.__('unknown')
  };
  return words[state] ?? state;
}

/** What the reaper would do, as a verb. */
export function actionWords(action: string, trans: ITrans): string {
  const words: Record<string, string> = {
    warn: trans.__('warning'),
    free: trans.__('its unused memory is freed'),
    offload: trans.__('its tensors move to host memory'),
    suspend: trans.__('it is suspended'),
    shutdown: trans.__('it is shut down'),
    'end orphan': trans.__('it is ended')
  };
  return words[action] ?? action;
}

/** What was done, and how it ended, from the audit's words for it. */
export function doneWords(action: string, outcome: string, trans: ITrans): string {
  const actions: Record<string, string> = {
    warn: trans.__('warned'),
    free: trans.__('free unused memory'),
    offload: trans.__('move to host memory'),
    suspend: trans.__('suspend'),
    shutdown: trans.__('shut down'),
    'end orphan': trans.__('end orphan'),
    keep: trans.__('keep')
  };
  const outcomes: Record<string, string> = {
    done: trans.__('done'),
    released: trans.__('device free'),
    'not released': trans.__('device not free'),
    failed: trans.__('failed'),
    cancelled: trans.__('cancelled'),
    'would be done': trans.__('dry run')
  };
  return `${actions[action] ?? action} · ${outcomes[outcome] ?? outcome}`;
}

/** The places where GPU-hours are lost. */
export function placeWords(place: string, trans: ITrans): string {
  const words: Record<string, string> = {
    'stalled on input': trans.__('Stalled on input'),
    'reserved for nothing': trans.__('Reserved for nothing'),
    'held by what is finished or crashed': trans.__('Held by what is finished or crashed')
  };
  return words[place] ?? place;
}

/** Steps that take something away; a person is told before them. */
export function takes(action: string): boolean {
  return ['free', 'offload', 'suspend', 'shutdown', 'end orphan'].includes(action);
}

/** What will happen to a holder and when; `passed_s` is how old the decision is. "" where nothing will. */
export function fateWords(decision: IDecision, passed_s: number, trans: ITrans): string {
  if (decision.acting) {
    return trans.__('now: %1', actionWords(decision.acting, trans));
  }
  const due = known(decision.due_in_s);
  if (due === undefined || decision.next_action === 'none' || !decision.next_action) {
    return '';
  }
  const words = actionWords(decision.next_action, trans);
  const left = countdown(due - passed_s);
  return decision.dry_run ? trans.__('%1 in %2 (dry run: nothing is done)', words, left) : trans.__('%1 in %2', words, left);
}

/** A notice before something is taken; in whole minutes, so that it is not said anew all the time. */
export function noticeWords(holder: IHolder, trans: ITrans): string {
  const name = holderName(holder, trans);
  const { next_action, due_in_s } = holder.reaper;
  const due = known(due_in_s);
  if (!takes(next_action) || due === undefined) {
    return trans.__('%1 is idle and holds a device.', name);
  }
  const what = actionWords(next_action, trans);
  const minutes = Math.ceil(due / 60);
  return minutes <= 1
    ? trans.__('%1 is idle and holds a device: in less than a minute %2.', name, what)
    : trans.__('%1 is idle and holds a device: in less than %2 min %3.', name, minutes, what);
}

/** For how long a holder has been idle, "" while it is not. */
export function idleWords(idle_s: Reading, passed_s: number, trans: ITrans): string {
  const idle = known(idle_s);
  return idle === undefined ? '' : trans.__('for %1', duration(idle + passed_s, trans));
}

/** The last part of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** Who holds: its notebook, or what else names it. */
export function holderName(holder: { path: string; kernel_id?: string; pid?: number }, trans: ITrans): string {
  if (holder.path) {
    return baseName(holder.path);
  }
  return holder.kernel_id ? trans.__('kernel %1', holder.kernel_id.slice(0, 8)) : trans.__('process %1', holder.pid ?? '?');
}

/** The policy as sentences. */
export function policyWords(policy: IPolicy, trans: ITrans): string[] {
  if (!policy.enabled) {
    return [trans.__('Off: nobody is warned, and nothing is freed.')];
  }
  const after = duration(policy.idle_timeout_s, trans);
  const lines = [
    policy.action === 'warn'
      ? trans.__('Warns after %1 of idleness. Nothing is freed.', after)
      : trans.__('After %1 of idleness: %2. Warns %3 before.', after, actionWords(policy.action, trans), duration(policy.warn_before_s, trans))
  ];
  if (policy.dry_run) {
    lines.push(trans.__('Dry run: what would be done is only recorded.'));
  }
  lines.push(
    policy.orphans === 'end'
      ? trans.__('What is left of dead kernels is ended.')
      : trans.__('What is left of dead kernels is only reported.')
  );
  if (policy.exempt.length) {
    lines.push(trans.__('Left alone: %1.', policy.exempt.join(', ')));
  }
  return lines;
}

/** The line of the status bar: the longest idle holder, else how busy the devices are. "" for no device. */
export function statusWords(holders: IHolder[], ratio: number | undefined, passed_s: number, trans: ITrans): string {
  const idle = holders
    .filter(h => h.holds && (h.state === 'idle' || h.state === 'finished and holding'))
    .map(h => known(h.idle_s) ?? 0);
  if (idle.length && idle.length === holders.filter(h => h.holds).length) {
    return trans.__('GPU idle %1', duration(Math.max(...idle) + passed_s, trans));
  }
  return ratio === undefined ? trans.__('GPU n/a') : trans.__('GPU %1', percent(ratio, trans));
}
