// Tables of resources, differences and events. A table renders only the visible rows.
import { html } from './vendor/htm-preact.js';
import { useEffect, useRef, useState } from './vendor/hooks.js';
import { all, count, events, get, head, idOf, route } from './store.js';
import { Chip, Empty, NoPage, State, age, clockTime, compare, since } from './parts.js';
import { cloudNow } from './store.js';
import { addressOf, stateOf } from './map.js';

const printed = 1e5; // height of a table on paper in pixels

/** Rows is a table whose rows have a fixed height. */
export function Rows({ label, columns, list, open }) {
  const ref = useRef(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const [sort, setSort] = useState({ by: 0, down: false });
  const rowHeight = 2.125 * parseFloat(getComputedStyle(document.documentElement).fontSize); // as in the style sheet
  useEffect(() => {
    const box = ref.current;
    const read = () => setView({ top: box.scrollTop, height: box.clientHeight });
    const watch = new ResizeObserver(read);
    watch.observe(box);
    read();
    const all = () => setView({ top: 0, height: printed }); // paper has no scroll box, so it must show all rows
    addEventListener('beforeprint', all);
    addEventListener('afterprint', read);
    return () => {
      watch.disconnect();
      removeEventListener('beforeprint', all);
      removeEventListener('afterprint', read);
    };
  }, []);
  const value = columns[sort.by].value ?? columns[sort.by].text;
  const sorted = columns[sort.by].fixed ? list : [...list].sort((a, b) => {
    const [x, y] = [value(a) ?? '', value(b) ?? ''];
    const order = typeof x === 'number' && typeof y === 'number' ? x - y : compare(x, y);
    return sort.down ? -order : order;
  });
  const first = Math.max(0, Math.floor(view.top / rowHeight) - 5);
  const last = Math.min(sorted.length, Math.ceil((view.top + view.height) / rowHeight) + 5);
  return html`<div class="table" ref=${ref} tabindex="0" role="region" aria-label=${label} onScroll=${(e) => setView({ top: e.currentTarget.scrollTop, height: e.currentTarget.clientHeight })}>
    <table aria-rowcount=${sorted.length + 1}><thead><tr>${columns.map((c, n) => html`<th scope="col" aria-sort=${sort.by === n ? (sort.down ? 'descending' : 'ascending') : 'none'}>
      <button class="plain" onClick=${() => setSort({ by: n, down: sort.by === n && !sort.down })}>${c.head}${sort.by === n && html`<span aria-hidden="true">${sort.down ? ' ↓' : ' ↑'}</span>`}</button></th>`)}</tr></thead>
    <tbody>${first > 0 && html`<tr aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${first * rowHeight}px`, padding: 0 }}></td></tr>`}
      ${sorted.slice(first, last).map((o, n) => html`<tr key=${o.rev ?? `${o.kind ?? ''} ${idOf(o)}`} aria-rowindex=${first + n + 2}>${columns.map((c, m) => html`<td class=${c.mono ? 'mono' : ''}>${m === 0 && open ? html`<a href=${open(o)}>${c.text(o)}</a>` : c.show ? c.show(o) : c.text(o)}</td>`)}</tr>`)}
      ${last < sorted.length && html`<tr aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${(sorted.length - last) * rowHeight}px`, padding: 0 }}></td></tr>`}</tbody></table></div>`;
}

export const pageOf = (kind, id) => `#/object/${kind}/${encodeURIComponent(id)}`;
const name = { head: 'Name', text: (o) => o.name };
const id = { head: 'Id', text: (o) => o.id, mono: true };
const state = { head: 'State', text: (o) => o.state ?? '', show: (o) => html`<${State} is=${o.state} />` };
const zone = { head: 'Zone', text: (o) => o.zone ?? (o.replicaZones ?? []).join(', ') };
const changed = { head: 'Changed', text: (o) => o.updatedAt, show: (o) => age(cloudNow() - Date.parse(o.updatedAt)) };
const projectColumn = { head: 'Project', text: (o) => get('project', o.project)?.name ?? o.project ?? '' };
const instanceName = (i) => get('instance', i)?.name ?? i;
const ranges = { head: 'Range', text: (o) => [o.ipv4, o.ipv6].filter(Boolean).join(', '), mono: true };

/** kinds are the tables of the view Resources, in the order of the menu. */
export const kinds = {
  instance: { label: 'Instances', columns: [name, id, { head: 'State', text: stateOf, show: (o) => html`<${State} is=${stateOf(o)} />` }, zone, { head: 'Type', text: (o) => o.type }, { head: 'Address', text: addressOf, mono: true }, projectColumn, changed] },
  loadBalancer: { label: 'Load balancers', columns: [name, id, state, { head: 'Address', text: (o) => o.ip, mono: true }, { head: 'Targets', text: (o) => o.status?.targets?.length ?? 0 }, { head: 'Condition', text: (o) => o.status?.condition ?? '', show: (o) => html`<${State} is=${o.status?.condition} />` }, projectColumn, changed] },
  disk: { label: 'Disks', columns: [name, id, state, zone, { head: 'GiB', text: (o) => o.sizeGiB }, { head: 'Attached to', text: (o) => (o.attachments ?? []).map((a) => instanceName(a.instance)).join(', ') }, projectColumn, changed] },
  snapshot: { label: 'Snapshots', columns: [name, id, state, { head: 'Disk', text: (o) => o.disk ?? '' }, projectColumn, changed] },
  network: { label: 'Networks', columns: [name, id, state, ranges, projectColumn, changed] },
  subnet: { label: 'Subnets', columns: [name, id, state, ranges, projectColumn, changed] },
  route: { label: 'Routes', columns: [name, id, state, { head: 'Destination', text: (o) => o.destination ?? '', mono: true }, projectColumn, changed] },
  address: { label: 'Addresses', columns: [name, id, { head: 'Address', text: (o) => o.ip ?? '', mono: true }, projectColumn, changed] },
  operation: { label: 'Operations', columns: [id, { head: 'Verb', text: (o) => o.verb }, { head: 'Object', text: (o) => o.target, show: (o) => html`<a href=${pageOf(o.kind, o.target)}>${get(o.kind, o.target)?.name ?? o.target}</a>` }, state, { head: 'Caller', text: (o) => o.caller }, { head: 'Held by', text: (o) => get('hold', o.heldBy)?.name ?? get('fault', o.heldBy)?.name ?? o.heldBy ?? '' }, changed] },
  node: { label: 'Nodes (cluster)', columns: [name, { head: 'Ready', text: (o) => o.ready, show: (o) => html`<${State} is=${o.ready === 'True' ? 'ready' : 'NotReady'} />` }, zone, { head: 'Pods', text: (o) => o.pods }, { head: 'Provider id', text: (o) => o.providerID ?? '', mono: true }, { head: 'Taints', text: (o) => (o.taints ?? []).join(', ') }] },
  service: { label: 'Services (cluster)', columns: [{ head: 'Name', text: (o) => `${o.namespace}/${o.name}` }, { head: 'Address', text: (o) => (o.ingress ?? []).join(', '), mono: true }] },
  volumeAttachment: { label: 'Volume attachments (cluster)', columns: [name, { head: 'Node', text: (o) => o.node }, { head: 'Disk', text: (o) => o.disk ?? '', mono: true }, { head: 'Attached', text: (o) => (o.attached ? 'yes' : 'no') }] },
};

export function Resources() {
  const kind = route.value[1] || 'instance';
  const [filter, setFilter] = useState('');
  if (!Object.hasOwn(kinds, kind)) return html`<${NoPage} />`;
  const k = kinds[kind];
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const list = all(kind).filter((o) => {
    if (!words.length) return true;
    const text = k.columns.map((c) => c.text(o)).concat(Object.entries(o.labels ?? {}).map((l) => l.join('='))).join(' ').toLowerCase();
    return words.every((w) => text.includes(w));
  });
  const shown = Object.entries(kinds).filter(([n]) => !['node', 'service', 'volumeAttachment'].includes(n) || head.value?.cluster);
  return html`<div class="row wrap"><h1>${k.label}</h1><span class="grow"></span>
      <input class="field" type="search" aria-label="Filter rows" placeholder="Filter: name, state, label" value=${filter} onInput=${(e) => setFilter(e.currentTarget.value)} /></div>
    <div class="tabs" role="navigation" aria-label="Kinds of resources">${shown.map(([n, t]) => html`<a href=${`#/resources/${n}`} aria-current=${n === kind ? 'page' : undefined}>${t.label.replace(' (cluster)', '')} <span class="count">${count(n)}</span></a>`)}</div>
    ${list.length ? html`<${Rows} key=${kind} label=${k.label} columns=${k.columns} list=${list} open=${(o) => pageOf(kind, idOf(o))} />` : html`<${Empty} title=${filter ? 'No row matches the filter' : `No ${k.label.toLowerCase()} yet`}>${filter ? 'Try fewer words.' : 'New objects appear here at once.'}</${Empty}>`}`;
}

export function Differences() {
  const list = head.value?.differences ?? [];
  const cluster = head.value?.cluster;
  if (!cluster) return html`<h1>Differences</h1><${Empty} title="This console shows no cluster">Start the console with a kubeconfig: <code>allinone console --kubeconfig FILE</code></${Empty}>`;
  if (!cluster.live) return html`<h1>Differences</h1><${Empty} title="The view of the cluster is not current">Reason: ${cluster.problem}. The differences appear again when the console can read the cluster.</${Empty}>`;
  return html`<h1>Differences between cloud and cluster</h1>
    ${list.length === 0 && html`<${Empty} title="No difference">The cluster agrees with the cloud.</${Empty}>`}
    ${list.slice(0, 100).map((d) => html`<article class="card difference" key=${`${d.rule} ${d.id}`}><div class="row wrap"><b><a href=${pageOf(d.kind, d.id)}>${d.name}</a></b><${Chip} tone=${d.missing ? 'bad' : 'warn'}>${d.label} ${since(d.since)}</${Chip}><span class="muted small">rule ${d.rule}</span></div>
      <p>${d.text}</p>${d.expected && html`<p class="muted">Next: ${d.expected}</p>`}</article>`)}
    ${list.length > 100 && html`<p class="muted">${list.length - 100} more differences, which appear here when earlier differences end.</p>`}`;
}

export function Events() {
  const list = [...events.value].reverse();
  return html`<h1>Events</h1><p class="muted">The newest events of the cloud's journal. Times are on the cloud's clock (UTC).</p>
    ${list.length ? html`<${Rows} label="Events" list=${list} columns=${[
      { head: 'Time', fixed: true, mono: true, text: (e) => clockTime(e.time, true) },
      { head: 'Object', text: (e) => e.name || e.id, show: (e) => html`<a href=${pageOf(e.kind, e.id)}>${e.name || e.id}</a>` },
      { head: 'Kind', text: (e) => e.kind },
      { head: 'State', text: (e) => (e.deleted ? 'deleted' : e.state ?? ''), show: (e) => html`<${State} is=${e.deleted ? 'deleted' : e.state} />` },
      { head: 'Caller', text: (e) => e.caller ?? '' }, { head: 'Cause', text: (e) => e.cause ?? '', mono: true }, { head: 'Request', text: (e) => e.requestId ?? '', mono: true }, { head: 'Revision', text: (e) => e.rev },
      { head: 'Machine time', mono: true, text: (e) => clockTime(e.machine, true) },
    ]} />` : html`<${Empty} title="Nothing has happened since the console started">New events appear here at once.</${Empty}>`}`;
}
