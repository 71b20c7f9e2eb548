/** What the reaper may do, where that is set, and what it did. */
import * as React from 'react';

import type { IAuditRow } from '../types.js';
import { baseName, doneWords, policyWords } from '../words.js';
import { Asking, Section, useShared } from './context.js';

export function Reaper(): JSX.Element {
  const { model, trans } = useShared();
  const answer = model.status;
  return (
    <Section id="reaper" title={trans.__('Reaper')}>
      {!answer ? (
        <Asking />
      ) : (
        <>
          <ul className="jp-gpupanel-plain">
            {policyWords(answer.reaper, trans).map(words => (
              <li key={words}>{words}</li>
            ))}
          </ul>
          {answer.warnings.map(words => (
            <p key={words} className="jp-gpupanel-fate">
              {words}
            </p>
          ))}
          <p className="jp-gpupanel-note">
            {trans.__('Set by the server’s administrator:')} <code>c.GpuProfReaper</code> {trans.__('in')}{' '}
            <code>jupyter_server_config.py</code>
          </p>
        </>
      )}
      {model.audit && model.audit.length > 0 && (
        <ul className="jp-gpupanel-list" aria-label={trans.__('Last actions')}>
          {model.audit.map(row => (
            <Row key={row.audit_id} row={row} />
          ))}
        </ul>
      )}
    </Section>
  );
}

function Row({ row }: { row: IAuditRow }): JSX.Element {
  const { trans } = useShared();
  return (
    <li>
      <div className="jp-gpupanel-line">
        <span title={row.path}>
          {doneWords(row.action, row.outcome, trans)}
          {row.path && ` · ${baseName(row.path)}`}
        </span>
        <time className="jp-gpupanel-soft" dateTime={row.at}>
          {new Date(row.at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' })}
        </time>
      </div>
      <div className="jp-gpupanel-soft">{row.sentence}</div>
    </li>
  );
}
