// Faults, clock, holds, saved states and forms.
import { html } from './vendor/htm-preact.js';
import { useEffect, useState } from './vendor/hooks.js';
import { activeFaults, all, call, can, cloudNow, get, head, identity, isActive, loaded, project, version } from './store.js';
import { Chip, Command, Empty, State, age, clockTime, since } from './parts.js';
import { Actions, actionsFor, asking, deletion, inProject, perform, removal, word } from './actions.js';

const Field = ({ label, children }) => html`<label class="labeled"><span>${label}</span>${children}</label>`;
const Pick = ({ value, set, options }) => html`<select value=${value} onChange=${(e) => set(e.currentTarget.value)}>${options.map((o) => html`<option value=${o} selected=${o === value}>${o}</option>`)}</select>`;

export function Create() {
  const zones = all('zone').map((z) => z.name).sort();
  const [name, setName] = useState('');
  const [zone, setZone] = useState('');
  const [types, setTypes] = useState(['small']);
  const [type, setType] = useState('small');
  useEffect(() => {
    call('GET', '/v1/instance-types').then((l) => setTypes(l.items.map((t) => t.name)), () => {});
  }, []);
  const taken = new Set(all('instance').map((i) => i.name));
  let n = 1;
  while (taken.has(`node-${n}`)) n++;
  const body = { name: name || `node-${n}`, zone: zone || zones[0], type };
  const action = {
    id: 'instances.create', label: 'Create', primary: true, command: `allinone cloud instances create ${word(body.name)} --zone ${word(body.zone ?? '')} --type ${word(type)}${inProject({ project: project.value || identity.value?.project })}`,
    run: () => call('POST', '/v1/instances', body, project.value || undefined).then((i) => removal(`Deleted ${i.name}`, [['instances', i.id, i.project]])), said: `Created ${body.name}`,
  };
  return html`<form class="form" onSubmit=${(e) => { e.preventDefault(); perform(action); }}>
    <${Field} label="Name"><input value=${name} placeholder=${`node-${n}`} maxlength="63" onInput=${(e) => setName(e.currentTarget.value)} /></${Field}>
    <${Field} label="Zone"><${Pick} value=${body.zone} set=${setZone} options=${zones} /></${Field}><${Field} label="Type"><${Pick} value=${type} set=${setType} options=${types} /></${Field}>
    <${Actions} list=${[action]} /></form>`;
}

/** Banner shows the active faults on every page. */
export function Banner() {
  const list = activeFaults();
  if (!list.length) return null;
  const f = list[0];
  return html`<div class="banner"><b role="status">Fault ${f.name} is active.</b><span>${f.match.operation}${f.match.zone ? ` in ${f.match.zone}` : ''}: ${f.effect.type}. ${f.when?.max ? `${f.hits} of ${f.when.max} hits.` : `Active for ${age(cloudNow() - Date.parse(f.createdAt))}.`}${list.length > 1 ? ` ${list.length - 1} more.` : ''}</span><span class="grow"></span>
    ${can('faults.delete') && html`<${Actions} list=${[removeAll(list)]} />`}</div>`;
}

function removeAll(list) {
  if (list.length === 1) return deletion('fault', list[0]);
  return {
    id: 'faults.delete', label: 'Remove all', said: `Removed ${list.length} faults`, command: `allinone cloud faults delete ${list.map((f) => word(f.name)).join(' ')}`,
    run: () => Promise.all(list.map((f) => call('DELETE', `/v1/faults/${f.id}`))),
    undo: () => perform({ label: 'Undo', said: 'The faults are active again', run: () => Promise.all(list.map(({ name, labels, match, when, effect }) => call('POST', '/v1/faults', { name, labels, match, when, effect }))) }),
  };
}

export function Faults() {
  const [presets, setPresets] = useState(null);
  const [zone, setZone] = useState('');
  useEffect(() => {
    call('GET', '/v1/faults/presets').then((l) => setPresets(l.items.map((p) => ({ ...p, zoned: p.faults.some((f) => f.match.zone) }))), () => setPresets([]));
  }, []);
  const list = all('fault');
  const zones = all('zone').map((z) => z.name).sort();
  const chosen = zone || zones[0] || '';
  const use = (p) => ({
    id: 'faults.create', label: 'Switch on', command: `allinone cloud faults preset ${p.name}${p.zoned ? ` --zone ${word(chosen)}` : ''}`, said: `${p.name} is on`,
    run: async () => {
      const made = [];
      for (const f of p.faults) made.push(await call('POST', '/v1/faults', p.zoned ? { ...f, match: { ...f.match, zone: f.match.zone ? chosen : undefined } } : f));
      return removal(`${p.name} is off`, made.map((f) => ['faults', f.id]));
    },
  });
  return html`<h1>Faults</h1><p class="muted">A fault changes calls of the API, or makes a zone fail. Watch how your controller reacts.</p>
    ${list.length > 0 && html`<h2>EXISTING FAULTS</h2>`}
    ${list.map((f) => html`<article class="card" key=${f.id}><div class="row wrap"><b>${f.name}</b><${State} is=${isActive(f) ? 'active' : 'not active'} tone=${isActive(f) ? 'warn' : 'off'} /><span class="muted small">${f.match.operation}${f.match.zone ? ` in ${f.match.zone}` : ''} · ${f.effect.type} · ${f.hits} hits${f.when?.max ? ` of ${f.when.max}` : ''} · ${f.seen} calls seen</span></div><${Actions} list=${actionsFor('fault', f)} /></article>`)}
    <div class="row wrap"><h2>PRESETS</h2><span class="grow"></span>${zones.length > 0 && html`<${Field} label="Zone"><${Pick} value=${chosen} set=${setZone} options=${zones} /></${Field}>`}</div>
    <div class="cards">${(presets ?? []).map((p) => html`<article class="card preset" key=${p.name}><div class="row"><b>${p.name}</b>${p.zoned && html`<${Chip}>${chosen}</${Chip}>`}</div><p class="small">${p.about}</p><${Actions} list=${[use(p)]} /></article>`)}</div>`;
}

const clockAction = (label, command, method, path, body, said, more) => ({ id: method === 'PUT' ? 'clock.set' : 'clock.advance', label, command, said, run: () => call(method, path, body), ...more });

/** nanos returns a time of the API in nanoseconds. Date.parse returns only whole milliseconds, so a step would end before its operation. */
export const nanos = (at) => BigInt(Date.parse(at)) * 1000000n + BigInt((at.match(/\.\d{3}(\d+)/)?.[1] ?? '').padEnd(6, '0'));

export function Time() {
  version.value;
  const c = head.value?.clock;
  if (!c) return html`<h1>Time</h1><p class="muted">Reading the clock…</p>`;
  const frozen = c.rate === 0;
  const waiting = all('operation').filter((o) => o.state === 'running').sort((a, b) => Date.parse(a.dueAt ?? 0) - Date.parse(b.dueAt ?? 0));
  const next = waiting.find((o) => o.dueAt && !o.heldBy); // the clock also has nextDue, which can be far away: for example, the expiry of a token
  const secondsTo = (now) => (Math.max(0, Number(nanos(next.dueAt) - nanos(now))) / 1e9).toFixed(9).replace(/\.?0+$/, '');
  const list = [];
  const undo = () => perform(clockAction('Undo', '', 'PUT', '/v1/clock', c.mode === 'real' ? { real: true } : { rate: c.rate }, 'The clock runs as before'));
  if (frozen) list.push(clockAction('Resume', 'allinone cloud clock resume', 'PUT', '/v1/clock', { rate: 1 }, 'The clock runs', { primary: true, undo }));
  else list.push(clockAction('Freeze', 'allinone cloud clock freeze', 'PUT', '/v1/clock', { rate: 0 }, 'The clock is frozen', { primary: true, undo }));
  if (next && frozen) {
    const step = clockAction('Step to the next operation', `allinone cloud clock advance ${secondsTo(c.now)}s`, 'POST', '/v1/clock/advance', null, 'One step: the clock moved to the next operation');
    // The page's copy of the clock can be a second old.
    list.push({ ...step, run: async () => call('POST', '/v1/clock/advance', { seconds: Number(secondsTo((await call('GET', '/v1/clock')).now)) }) });
  }
  for (const [label, s, text] of [['+1 s', 1, '1s'], ['+1 min', 60, '1m'], ['+1 h', 3600, '1h']]) list.push(clockAction(label, `allinone cloud clock advance ${text}`, 'POST', '/v1/clock/advance', { seconds: s }, `The clock moved ${label}`));
  list.push(clockAction('×60', 'allinone cloud clock set --rate 60', 'PUT', '/v1/clock', { rate: 60 }, 'The clock runs 60 times faster', { undo }));
  if (c.mode !== 'real') list.push(clockAction('Real time', 'allinone cloud clock set --real', 'PUT', '/v1/clock', { real: true }, 'The clock follows the machine\'s clock'));
  return html`<h1>Time</h1>
    ${c.mode !== 'real' && html`<div class="banner" role="status"><b>The cloud's clock is ${c.mode}.</b><span>Kubernetes uses the machine's clock, not the cloud's clock.</span></div>`}
    <section class="card"><div class="row wrap"><span class="clock mono">${new Date(cloudNow()).toISOString().replace('T', ' ').slice(0, 19)}</span><${Chip} tone=${frozen ? 'warn' : ''}>${c.mode}${c.rate > 1 ? ` ×${c.rate}` : ''}</${Chip}>
      <span class="muted">${next ? `Next operation at ${clockTime(next.dueAt, true)}` : 'No operation is due'}</span></div><${Actions} list=${list} /></section>
    <h2>WAITING OPERATIONS</h2>
    ${waiting.length === 0 && html`<${Empty} title="No operation waits">Freeze the clock or create a hold, and then start, stop or create an instance.</${Empty}>`}
    ${waiting.slice(0, 30).map((o) => html`<article class="card" key=${o.id}><div class="row wrap"><b>${o.verb} ${get(o.kind, o.target)?.name ?? o.target}</b><${Chip}>${o.id}</${Chip}>${o.heldBy ? html`<${State} is="held" tone="warn" /><span class="small muted">by ${get('hold', o.heldBy)?.name ?? get('fault', o.heldBy)?.name ?? o.heldBy}</span>` : o.dueAt && html`<span class="small muted">due ${clockTime(o.dueAt, true)}</span>`}</div><${Actions} list=${actionsFor('operation', o)} /></article>`)}
    ${waiting.length > 30 && html`<a href="#/resources/operation">${waiting.length - 30} more</a>`}
    <${Holds} />`;
}

function Holds() {
  const [kind, setKind] = useState('instance');
  const [verb, setVerb] = useState('stop');
  const holds = all('hold');
  const name = `hold-${kind.toLowerCase()}-${verb === '*' ? 'all' : verb}`;
  const verbs = { instance: ['create', 'start', 'stop', 'reboot', 'terminate', '*'], loadBalancer: ['create', 'update', 'delete', '*'], disk: ['create', 'attach', 'detach', 'resize', 'modify', 'delete', '*'] };
  const action = { id: 'holds.create', label: 'Hold', command: `allinone cloud holds create ${name} --kind ${kind} --verb ${word(verb)}`, said: `New operations wait: ${verb} of kind ${kind}`, run: () => call('POST', '/v1/holds', { name, kind, verb }).then((h) => removal(`Removed ${h.name}`, [['holds', h.id]])) };
  return html`<h2>HOLDS</h2><p class="muted small">A hold lets operations begin, but not end. Use a hold to inspect a state that usually lasts only a moment.</p>
    ${holds.map((h) => html`<article class="card" key=${h.id}><div class="row wrap"><b>${h.name}</b><span class="muted small">${h.kind} ${h.verb} ${h.target ?? ''}</span></div><${Actions} list=${actionsFor('hold', h)} /></article>`)}
    ${can('holds.create') && html`<form class="form" onSubmit=${(e) => { e.preventDefault(); perform(action); }}><${Field} label="Kind"><${Pick} value=${kind} set=${(k) => { setKind(k); setVerb(verbs[k][0]); }} options=${Object.keys(verbs)} /></${Field}><${Field} label="Verb"><${Pick} value=${verb} set=${setVerb} options=${verbs[kind]} /></${Field}><${Actions} list=${[action]} /></form>`}`;
}

export function States() {
  const [list, setList] = useState(null);
  const [diff, setDiff] = useState(null);
  const [name, setName] = useState('');
  const read = () => call('GET', '/v1/states').then((l) => setList(l.items), (e) => setList({ error: e.message }));
  useEffect(() => {
    read();
  }, [loaded.value]);
  if (list?.error) return html`<h1>Saved states</h1><${Empty} title="The saved states are not available">${list.error}</${Empty}>`;
  const wanted = name || 'before-the-test';
  const save = { id: 'states.save', label: 'Save', primary: true, command: `allinone cloud state save ${word(wanted)}`, said: `Saved ${wanted}`, run: () => call('POST', '/v1/states', { name: wanted }).then(read).then(() => () => removal(`Deleted ${wanted}`, [['states', wanted]])().then(read)) };
  const of = (s) => [
    { id: 'states.load', label: 'Load…', danger: true, confirm: s.name, command: `allinone cloud state load ${word(s.name)}`, said: `Loaded ${s.name}`, run: () => call('POST', `/v1/states/${s.name}/load`) },
    { id: 'states.diff', label: 'Compare with now', command: `allinone cloud state diff ${word(s.name)}`, said: `Compared with ${s.name}`, run: () => call('GET', `/v1/states/diff?from=${s.name}`).then((d) => setDiff({ name: s.name, items: d.items })) },
    { id: 'states.delete', label: 'Delete…', danger: true, confirm: s.name, command: `allinone cloud state delete ${word(s.name)}`, said: `Deleted ${s.name}`, run: () => call('DELETE', `/v1/states/${s.name}`).then(read) },
  ];
  return html`<h1>Saved states</h1><p class="muted">A saved state is a copy of the whole cloud. A load replaces the cloud for all users.</p>
    ${can('states.save') && html`<form class="form" onSubmit=${(e) => { e.preventDefault(); perform(save); }}><${Field} label="Name"><input value=${name} placeholder="before-the-test" maxlength="63" onInput=${(e) => setName(e.currentTarget.value)} /></${Field}><${Actions} list=${[save]} /></form>`}
    ${list?.length === 0 && html`<${Empty} title="No saved state">Save the cloud before an experiment.</${Empty}>`}
    ${(list ?? []).map((s) => html`<article class="card" key=${s.name}><div class="row wrap"><b>${s.name}</b><span class="muted small">${since(s.savedAt)} old · revision ${s.revision} · ${Math.ceil(s.bytes / 1024)} KiB${s.damage ? ` · damaged: ${s.damage}` : ''}</span></div><${Actions} list=${of(s)} />
      ${diff?.name === s.name && html`<div class="small"><b>${diff.items.length ? `${diff.items.length} differences` : 'No difference'}</b><ul>${diff.items.slice(0, 50).map((d) => html`<li>${d.change} ${d.kind} ${d.name || d.id} ${(d.fields ?? []).join(', ')}</li>`)}</ul></div>`}</article>`)}`;
}

/** Confirm asks the user to type the name of an object before an action that cannot be undone. */
export function Confirm() {
  const a = asking.value;
  const [typed, setTyped] = useState('');
  useEffect(() => {
    setTyped('');
    if (a) document.getElementById('confirm')?.showModal();
  }, [a]);
  if (!a) return null;
  const close = () => {
    document.getElementById('confirm').close(); // returns the focus to the button that opened the dialog
    asking.value = null;
  };
  // The browser sends the event close some time after the dialog has closed. Before this event, the user can already ask for the
  // dialog again. So close() ends the question at once. It also removes this dialog from the page, so the event then changes nothing.
  return html`<dialog id="confirm" aria-labelledby="confirm-title" onCancel=${(e) => { e.preventDefault(); close(); }} onClose=${(e) => e.currentTarget.isConnected && (asking.value = null)}><form onSubmit=${(e) => { e.preventDefault(); if (typed === a.confirm) { close(); perform(a); } }}>
    <h2 id="confirm-title" class="big">${a.label.replace('…', '')} ${a.confirm}?</h2><p>You cannot undo this action. Type <b>${a.confirm}</b> to confirm.</p>
    <input autofocus aria-label="Name to confirm" value=${typed} onInput=${(e) => setTyped(e.currentTarget.value)} /><${Command} text=${a.command} />
    <div class="row"><button type="submit" class="danger" disabled=${typed !== a.confirm}>${a.label.replace('…', '')}</button><button type="button" onClick=${close}>Cancel</button></div></form></dialog>`;
}
