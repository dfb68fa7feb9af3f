"""How the page looks: one style sheet, light and dark."""

CSS = """
:root { color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --ink: #1c2430; --soft: #5b6675; --line: #dde2e9; --grid: #e6eaf0;
  --unfused: #8a97a8; --fused: #1f7a5c; --kernels: #2659c4; --other: #9a6bb8; --bad: #c0392b; --good: #1f7a5c;
  --noise: #a36a00; --band: #00000012; --custom: #d9f0e6; --weighty: #fdf0d5; --node: #ffffff; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14181f; --card: #1c222b; --ink: #e6ebf2; --soft: #9aa6b5; --line: #313a47; --grid: #29313d;
  --unfused: #7c8a9c; --fused: #4cc49a; --kernels: #7aa2ff; --other: #c59be0; --bad: #ff7b6b; --good: #4cc49a;
  --noise: #e5b45a; --band: #ffffff14; --custom: #17443a; --weighty: #4a3b1a; --node: #252c37; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 900px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 15px; font-weight: 600; color: var(--soft); margin: 0 0 10px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 40px 0 4px; }
h3 { font-size: 14px; margin: 18px 0 6px; }
p, figcaption { margin: 4px 0 12px; max-width: 75ch; overflow-wrap: anywhere; }
.soft, figcaption { color: var(--soft); font-size: 13.5px; }
.verdict { font-size: 22px; line-height: 1.35; font-weight: 600; margin: 0 0 22px; max-width: none; padding-left: 16px;
  border-left: 5px solid var(--unfused); }
.verdict.faster { border-color: var(--good); } .verdict.slower, .verdict.bad { border-color: var(--bad); }
.verdict.noise { border-color: var(--noise); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; }
th, td { padding: 7px 12px 7px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; } td small { color: var(--soft); white-space: nowrap; }
td.path { overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; } .noisy { color: var(--noise); }
figure { margin: 12px 0 0; overflow-x: auto; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px; margin: 12px 0;
  overflow-x: auto; }
.pair { display: grid; grid-template-columns: 1fr; gap: 8px; }
svg { max-width: 100%; height: auto; display: block; }
.card svg { max-width: none; }
svg text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  fill: var(--ink); }
svg .number { font-variant-numeric: tabular-nums; fill: var(--soft); }
svg .axis { fill: var(--soft); font-size: 11.5px; }
svg .label { font-size: 11.5px; }
.bar.unfused, .dot.unfused { fill: var(--unfused); } .bar.fused, .dot.fused { fill: var(--fused); }
.bar.kernels, .dot.kernels { fill: var(--kernels); } .bar.neutral { fill: var(--unfused); }
.dot.other { fill: var(--other); }
.curve { fill: none; stroke-width: 2; } .curve.fused { stroke: var(--fused); }
.curve.kernels { stroke: var(--kernels); }
.whisker { stroke: var(--ink); stroke-width: 1.4; fill: none; opacity: .75; }
.tick { stroke: var(--grid); } .one { stroke: var(--soft); stroke-dasharray: 3 3; }
.band { fill: var(--band); } .limit { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 5 4; }
.node { stroke: var(--unfused); stroke-width: 1.1; fill: var(--node); }
.node.custom { fill: var(--custom); stroke: var(--fused); stroke-width: 1.6; } .node.weighty { fill: var(--weighty); }
.edge { fill: none; stroke: var(--unfused); stroke-width: 1.1; }
.arrow { fill: none; stroke: var(--soft); stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 620px) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 8px; } }
"""
