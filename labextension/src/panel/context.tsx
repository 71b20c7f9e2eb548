/** What every section needs: the words, the model, the actions; and the small pieces they share. */
import * as React from 'react';

import type { Actions } from '../actions.js';
import type { Model } from '../model.js';
import type { NotebookRuns } from '../notebook.js';
import type { ITrans } from '../words.js';

export interface IShared {
  model: Model;
  actions: Actions;
  runs: NotebookRuns | null;
  trans: ITrans;
}

export const Shared = React.createContext<IShared>(null as unknown as IShared);
export const useShared = (): IShared => React.useContext(Shared);

/** A section with a heading that folds it; a region for screen readers. */
export function Section(props: { id: string; title: string; note?: string; children: React.ReactNode }): JSX.Element {
  const id = `jp-gpupanel-${props.id}`;
  return (
    <section className="jp-gpupanel-section" aria-labelledby={id}>
      <details open>
        <summary>
          <h2 id={id}>{props.title}</h2>
          {props.note && <span className="jp-gpupanel-soft">{props.note}</span>}
        </summary>
        {props.children}
      </details>
    </section>
  );
}

/** In place of what was not answered yet. */
export function Asking(): JSX.Element {
  const { model, trans } = useShared();
  return <p className="jp-gpupanel-note">{model.trouble ? trans.__('Not known.') : trans.__('Asking the server …')}</p>;
}

/** A bar of 0 to 1, said in words to those who do not see it. */
export function Meter(props: { ratio: number | undefined; label: string; words: string }): JSX.Element {
  const share = Math.min(1, Math.max(0, props.ratio ?? 0));
  return (
    <div
      className="jp-gpupanel-meter"
      role="meter"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(100 * share)}
      aria-valuetext={props.words}
    >
      <div style={{ width: `${100 * share}%` }} />
    </div>
  );
}

/** Draw anew each second while the panel is in sight: countdowns go on between two answers. */
export function useSeconds(): void {
  const { model } = useShared();
  const [, tick] = React.useReducer((n: number) => n + 1, 0);
  React.useEffect(() => {
    const timer = setInterval(() => model.visible && tick(), 1000);
    return () => clearInterval(timer);
  }, [model]);
}

/** A small button. */
export function Act(props: { label: string; about?: string; onClick: () => unknown }): JSX.Element {
  return (
    <button
      type="button"
      className="jp-gpupanel-button"
      aria-label={props.about ? `${props.label}: ${props.about}` : undefined}
      onClick={() => void props.onClick()}
    >
      {props.label}
    </button>
  );
}
