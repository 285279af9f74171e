// A dashboard of deploy/grafana as a page, for scripts/dashboard_pictures. Panels are drawn by Grafana's own
// components (@grafana/ui) where they are published: stat, table, time series, panel frames. Heat maps and state
// timelines, whose panels are part of Grafana's server, are drawn here after the same options.
//
// The page has window.PICTURE: {dashboard, from, to, results: {panel id: {ref: [{metric, values}]}}}, times in
// seconds, values as Prometheus gives them.
import React from 'react';
import { createRoot } from 'react-dom/client';

// Required, not imported: their .mjs files import CommonJS packages as Node does, which wraps some components.
const {
  createTheme, dateTime, FieldType, getDisplayProcessor, getValueFormat, reduceField,
  standardTransformers, standardTransformersRegistry, ThemeContext, toDataFrame, transformDataFrame,
} = require('@grafana/data');
const { BigValue, GlobalStyles, PanelChrome, Table, TimeSeries } = require('@grafana/ui');
const { MemoryRouter } = require('react-router-dom');

const { dashboard, from, to, results } = window.PICTURE;
const theme = createTheme({ colors: { mode: 'dark' } });
const WIDTH = 1560, CELL = WIDTH / 24, ROW = 30, GAP = 8;
const TIME_RANGE = { from: dateTime(from * 1000), to: dateTime(to * 1000),
                     raw: { from: dateTime(from * 1000), to: dateTime(to * 1000) } };

// Some have two names.
const transformers = [...new Map(Object.values(standardTransformers).map((t) => [t.id, t])).values()];
standardTransformersRegistry.setInit(() => transformers.map(
  (t) => ({ id: t.id, name: t.name, transformation: async () => t, editor: async () => null })));

const legend = (target, metric) => target.legendFormat
  ? target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? '')
  : Object.values(metric).join(' ') || target.expr;

function configOf(panel, name) {
  const { defaults, overrides } = panel.fieldConfig;
  const config = { color: { mode: 'palette-classic' }, ...structuredClone(defaults) };
  for (const override of overrides) {
    if (override.matcher.id !== 'byName' || override.matcher.options !== name) continue;
    for (const { id, value } of override.properties) {
      if (id.startsWith('custom.')) config.custom = { ...config.custom, [id.slice(7)]: value };
      else config[id] = value;
    }
  }
  if (panel.type !== 'timeseries' && !config.mappings) config.color = { mode: 'thresholds' };
  config.thresholds ??= { mode: 'absolute', steps: [{ value: -Infinity, color: 'green' }] };
  config.thresholds = { ...config.thresholds,
    steps: config.thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity })) };
  return config;
}

// A field as a panel wants it: with its configuration, its place among the series (its color) and its text.
function finish(panel, field, series) {
  field.config = { ...field.config, ...configOf(panel, field.config?.displayName ?? field.name) };
  field.state = { ...field.state, seriesIndex: series };
  field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
  return field;
}

function framesOf(panel) {
  let series = 0;
  return panel.targets.flatMap((target) => (results[panel.id]?.[target.refId] ?? []).map(
    ({ metric, values }) => {
      const name = legend(target, metric);
      const numbers = values.map(([, value]) => (Number.isFinite(+value) ? +value : null));
      const frame = toDataFrame({ refId: target.refId, fields: [
        { name: 'Time', type: FieldType.time, values: values.map(([time]) => time * 1000) },
        { name: 'Value', type: FieldType.number, values: numbers, labels: metric,
          config: { displayName: name, displayNameFromDS: name } }] });
      frame.fields[0].display = getDisplayProcessor({ field: frame.fields[0], theme, timeZone: 'utc' });
      finish(panel, frame.fields[1], series++);
      return frame;
    }));
}

function Stat({ panel, width, height }) {
  const frames = framesOf(panel);
  if (frames.length === 0) return <div style={{ padding: 16 }}>No data</div>;
  return <div style={{ display: 'flex' }}>{frames.map((frame, i) => {
    const field = frame.fields[1];
    const last = reduceField({ field, reducers: ['lastNotNull'] }).lastNotNull;
    const value = { ...field.display(last), title: field.config.displayName };
    if (panel.options.textMode === 'name') Object.assign(value, { text: value.title, suffix: '', prefix: '' });
    return <BigValue key={i} theme={theme} width={width / frames.length} height={height} value={value}
      colorMode="value" graphMode="none" justifyMode="auto" textMode={panel.type === 'gauge' ? 'value' : panel.options.textMode === 'name' ? 'value' : 'auto'} />;
  })}</div>;
}

function Gauge({ panel, width, height }) {
  const [frame] = framesOf(panel);
  if (!frame) return <div style={{ padding: 16 }}>No data</div>;
  const field = frame.fields[1];
  const last = reduceField({ field, reducers: ['lastNotNull'] }).lastNotNull ?? 0;
  const { min = 0, max = 1 } = field.config;
  const share = Math.min(1, Math.max(0, (last - min) / (max - min)));
  const shown = field.display(last);
  const radius = Math.min(width / 2.4, height - 24), x = width / 2, y = height - 14;
  const arc = (part) => {
    const angle = Math.PI * (1 - part);
    return `M ${x - radius} ${y} A ${radius} ${radius} 0 0 1 ${x + radius * Math.cos(angle)} ${y - radius * Math.sin(angle)}`;
  };
  return <svg width={width} height={height}>
    <path d={arc(1)} stroke="#2c3235" strokeWidth={14} fill="none" />
    <path d={arc(Math.max(share, 0.001))} stroke={shown.color} strokeWidth={14} fill="none" />
    <text x={x} y={y - 4} fontSize={22} fill={shown.color} textAnchor="middle">{shown.text}{shown.suffix}</text>
  </svg>;
}

function Lines({ panel, width, height }) {
  const frames = framesOf(panel);
  if (frames.length === 0) return <div style={{ padding: 16 }}>No data</div>;
  return <TimeSeries frames={frames} structureRev={1} width={width} height={height} timeRange={TIME_RANGE}
    timeZone="utc" legend={panel.options.legend} options={panel.options} />;
}

function Matrix({ panel, width, height }) {
  const rows = panel.targets.flatMap((target) => results[panel.id]?.[target.refId] ?? []);
  if (rows.length === 0) return <div style={{ padding: 16 }}>No data</div>;
  const last = rows.map(({ metric, values }) => ({ metric, value: +values[values.length - 1][1] }));
  const labels = Object.keys(last[0].metric);
  const frame = toDataFrame({ fields: [
    { name: 'Time', type: FieldType.time, values: last.map(() => to * 1000) },
    ...labels.map((label) => ({ name: label, type: FieldType.string, values: last.map((row) => row.metric[label]) })),
    { name: 'Value', type: FieldType.number, values: last.map((row) => row.value) }] });
  const [shown, setShown] = React.useState();
  React.useEffect(() => {
    const done = transformDataFrame(panel.transformations, [frame]).subscribe(([table]) => {
      table.fields.forEach((field, i) => finish(panel, field, i));
      setShown(table);
    });
    return () => done.unsubscribe();
  }, []);
  return shown ? <Table data={shown} width={width} height={height} columnMinWidth={40} /> : null;
}

const time = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

function Axis({ left, width, y }) {
  return [0, 1, 2, 3, 4].map((i) => <text key={i} x={left + (width * i) / 4} y={y} fontSize={11}
    fill={theme.colors.text.secondary} textAnchor={i === 0 ? 'start' : i === 4 ? 'end' : 'middle'}>
    {time(from + ((to - from) * i) / 4)}</text>);
}

function HeatMap({ panel, width, height }) {
  const series = panel.targets.flatMap((target) => results[panel.id]?.[target.refId] ?? [])
    .map(({ metric, values }) => ({ bound: parseFloat(metric.le.replace('+Inf', 'Infinity')), values }))
    .sort((a, b) => a.bound - b.bound);
  if (series.length === 0) return <div style={{ padding: 16 }}>No data</div>;
  const format = getValueFormat(panel.fieldConfig.defaults.unit);
  const say = (bound) => { const f = format(bound); return `${f.prefix ?? ''}${f.text}${f.suffix ?? ''}`; };
  const left = 70, plot = width - left - 8, tall = height - 22, row = tall / series.length;
  const step = series[0].values.length > 1 ? series[0].values[1][0] - series[0].values[0][0] : 1;
  const before = series.map((_, i) => (i === 0 ? new Map() : new Map(series[i - 1].values)));
  const cells = series.flatMap(({ values }, i) => values.map(
    ([at, value]) => ({ i, at, count: value - (before[i].get(at) ?? 0) }))).filter((cell) => cell.count > 1e-9);
  const most = Math.max(...cells.map((cell) => cell.count), 1e-9);
  return <svg width={width} height={height}>
    {series.map(({ bound }, i) => i % 2 === 0 && <text key={i} x={left - 6} y={tall - i * row - 2} fontSize={11}
      fill={theme.colors.text.secondary} textAnchor="end">{bound === Infinity ? 'more' : say(bound)}</text>)}
    {cells.map(({ i, at, count }, k) => <rect key={k} x={left + (plot * (at - from)) / (to - from)}
      y={tall - (i + 1) * row} width={Math.max(1, (plot * step) / (to - from))} height={row - 1}
      fill="#ff9830" fillOpacity={0.15 + 0.85 * Math.sqrt(count / most)} />)}
    <Axis left={left} width={plot} y={height - 4} />
  </svg>;
}

function StateTimeline({ panel, width, height }) {
  const frames = framesOf(panel);
  const left = 130, plot = width - left - 8, tall = (height - 22) / Math.max(frames.length, 1);
  return <svg width={width} height={height}>{frames.map((frame, i) => {
    const [times, field] = [frame.fields[0].values, frame.fields[1]];
    return <g key={i}>
      <text x={left - 6} y={(i + 0.65) * tall} fontSize={12} fill={theme.colors.text.primary}
        textAnchor="end">{field.config.displayName}</text>
      {times.map((at, k) => {
        const end = k + 1 < times.length ? times[k + 1] : to * 1000;
        return <rect key={k} x={left + (plot * (at / 1000 - from)) / (to - from)} y={(i + 0.1) * tall}
          width={(plot * (end - at)) / 1000 / (to - from) + 0.5} height={0.8 * tall}
          fill={field.display(field.values[k]).color} fillOpacity={0.7} />;
      })}
    </g>;
  })}<Axis left={left} width={plot} y={height - 4} /></svg>;
}

const KINDS = { stat: Stat, gauge: Gauge, timeseries: Lines, table: Matrix, heatmap: HeatMap,
                'state-timeline': StateTimeline };

function Place({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const style = { position: 'absolute', left: x * CELL, top: 44 + y * (ROW + GAP) };
  const width = w * CELL - GAP, height = h * (ROW + GAP) - GAP;
  if (panel.type === 'row') return <h4 style={style}>{panel.title}</h4>;
  const Kind = KINDS[panel.type];
  return <div style={style}><PanelChrome title={panel.title} width={width} height={height}>
    {(inner, tall) => <Kind panel={panel} width={inner} height={tall} />}</PanelChrome></div>;
}

function Dashboard() {
  const bottom = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return <ThemeContext.Provider value={theme}><GlobalStyles /><MemoryRouter>
    <div style={{ position: 'relative', width: WIDTH, height: 44 + bottom * (ROW + GAP), padding: '8px 0' }}>
      <h3>{dashboard.title}</h3>
      {dashboard.panels.map((panel) => <Place key={panel.id} panel={panel} />)}
    </div></MemoryRouter></ThemeContext.Provider>;
}

createRoot(document.getElementById('page')).render(<Dashboard />);
