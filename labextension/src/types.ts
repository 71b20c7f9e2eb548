/** What the server answers, as jupyter_gpuprof/server/protocol.py writes it down: only what is shown here. */

/** There is no number, and this is why. */
export interface IMissing {
  missing: string;
}
export type Reading = number | IMissing;

/** A number with its doubt. */
export interface IEstimate {
  value: number;
  low: number;
  high: number;
}

export interface IUnattributed {
  held_bytes: Reading;
  why: string;
  processes: { pid: number; used_bytes: Reading; why: string }[];
}

export interface IDevice {
  index: number;
  uuid: string;
  name: string;
  state: 'ok' | 'lost' | 'unknown';
  reason: string;
  mig: boolean;
  total_bytes: Reading;
  used_bytes: Reading;
  utilisation_ratio: Reading;
  gpm: { active_ratio: Reading } | IMissing;
  unattributed: IUnattributed | null;
}

export interface IDevices {
  state: 'ok' | 'no device' | 'unknown';
  reason: string;
  driver: string;
  devices: IDevice[];
}

export interface IDecision {
  holder_id: string;
  action: string;
  reason: string;
  sentence: string;
  idle_s: Reading;
  due_in_s: Reading;
  next_action: string;
  dry_run: boolean;
  acting: string;
}

export interface IHolder {
  holder_id: string;
  kernel_id: string;
  path: string;
  state: string;
  holds: boolean;
  held_bytes: Reading;
  idle_s: Reading;
  keep: { until_in_s: number; why: string } | null;
  reaper: IDecision;
}

export interface IOrphan {
  orphan_id: string;
  pid: number;
  path: string;
  certain: boolean;
  held_bytes: Reading;
  gone_ago_s: Reading;
  reaper: IDecision;
}

export interface IHolders {
  holders: IHolder[];
  orphans: IOrphan[];
}

export interface IPolicy {
  enabled: boolean;
  idle_timeout_s: number;
  warn_before_s: number;
  action: string;
  busy_timeout_s: number | null;
  min_held_bytes: number;
  exempt: string[];
  orphans: string;
  keep_max_s: number;
  dry_run: boolean;
}

export interface IStatus {
  version: string;
  devices: { simulated?: boolean };
  reaper: IPolicy;
  ledger: { trouble: string };
  warnings: string[];
}

export interface IAuditRow {
  audit_id: number;
  at: string;
  path: string;
  action: string;
  by: string;
  outcome: string;
  sentence: string;
}

export interface ILedgerGroup {
  key: string;
  seconds: Record<string, number>;
  allocated_s: number;
  busy_ratio: Reading | IEstimate;
}

export interface ILedger {
  groups: ILedgerGroup[];
  total: ILedgerGroup;
  losses: { place: string; seconds: number }[];
}

export interface IRemedy {
  id: string;
  title: string;
  predicted_step_s: Reading;
  how: string;
  setting: string;
}

export interface IRun {
  run_id: string;
  name: string;
  started_at: string;
  device: { kind: string; name: string; simulated: boolean };
  clock: 'device' | 'host';
  steps: { counted: number; mean_s: Reading };
  shares: Record<string, IEstimate | IMissing | Record<string, IEstimate | IMissing>>;
  verdict: { label: string; strength: string; sentence: string; doubts: string[] };
  remedies: IRemedy[];
}

/** The mark that a report of ours leaves in the metadata of a notebook's output: `views/marks.py`. */
export interface IRunMark {
  run_id: string;
  name: string;
  label: string;
  started_at: string;
}
export interface IScalingMark {
  label: string;
  sentence: string;
  simulated: boolean;
  points: { count: number; throughput: number }[];
}

export interface IKept {
  /** What holds now. */
  keep: { until_in_s: number; why: string } | null;
  /** Whether it is kept by nothing now. */
  ended: boolean;
  granted_s: number;
}

export interface IReleased {
  outcome: string;
  sentence: string;
}
