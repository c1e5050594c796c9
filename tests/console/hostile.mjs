// Texts that would be code, markup or another address if a page read them as such. Each sets `window.executed`.

const code = "window.executed=1";
export const HOSTILE = [
  `<script>${code}</script>`,
  `<img src=x onerror="${code}">`,
  `"><svg onload="${code}">`,
  `' autofocus onfocus='${code}' x='`,
  `" onmouseover="${code}" y="`,
  `</title></style></textarea><script>${code}</script>`,
  `<iframe srcdoc="<script>parent.${code}</script>"></iframe>`,
  `<details open ontoggle="${code}">x</details>`,
  `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=${code}&gt;">`,
  `javascript:${code}`,
  `JaVaScRiPt:${code}//`,
  `data:text/html,<script>${code}</script>`,
  `<a href="javascript:${code}">open</a>`,
  `<form action="javascript:${code}"><button>send</button></form>`,
  `<base href="http://evil.example/">`,
  `<link rel=stylesheet href="http://evil.example/x.css">`,
  `<meta http-equiv=refresh content="0;url=http://evil.example/">`,
  `<object data="javascript:${code}"></object>`,
  `<style>@import "http://evil.example/x.css"; * { display: none }</style>`,
  `{{constructor.constructor('${code}')()}}`,
  `\${${code}}`,
  `&lt;script&gt;${code}&lt;/script&gt;`,
  `%3Cscript%3E${code}%3C/script%3E`,
  `'-${code}-'`,
  `\\u003cscript\\u003e${code}`,
  `__proto__`,
  `constructor`,
  `../../api/v1/cases`,
  `#/cases/1?open=true&x="><b>`,
  `\u202e${code}\u2066<b>\u0000\u001b[31m`,
];

/** Elements that the console never has: one of them on a page is text that was read as markup. */
export const FOREIGN =
  "script:not([src='main.js']), img, iframe, object, embed, base, form, style, math, meta[http-equiv], link[href^='http'], b[onmouseover], [onerror], [onload], [onfocus], [onmouseover], [ontoggle], [srcdoc]";
