"""An OpenAPI document as one page: no script, no image, no address but its own. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; padding: .3rem .7rem; }
summary { cursor: pointer; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .6rem; border-radius: 4px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; border-top: 1px solid var(--soft); }
.method { display: inline-block; min-width: 4.2rem; font-weight: 600; }
.text { white-space: pre-line; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy: its own style, known by its digest, and nothing else."""


def page(document: dict[str, Any]) -> str:
    """HTML of a document."""
    info = document["info"]
    sections = []
    for tag in document["tags"]:
        operations = [
            _operation(method, path, told)
            for path, methods in document["paths"].items()
            for method, told in methods.items()
            if tag["name"] in told["tags"]
        ]
        sections.append(f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>{''.join(operations)}")
    models = "".join(
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>{_schema(schema)}</details>'
        for name, schema in document["components"]["schemas"].items()
    )
    title = f"{info['title']} {info['version']}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{escape(info['summary'])} "
        f'The same as data: <a href="openapi.json">openapi.json</a>.</p>'
        f'<details><summary>Errors</summary><div class="text">{escape(info["description"])}</div></details>'
        f"{''.join(sections)}<h2>Models</h2>{models}</body></html>\n"
    )


def _operation(method: str, path: str, told: dict[str, Any]) -> str:
    parts = [f'<p class="text">{escape(told.get("description", ""))}</p>' if told.get("description") else ""]
    if told.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}"
            f"{'' if one['required'] else ', optional'}</td><td>{escape(one.get('description', ''))}"
            f" <code>{escape(_short(one['schema']))}</code></td></tr>"
            for one in told["parameters"]
        )
        parts.append(f"<table>{rows}</table>")
    if "requestBody" in told:
        optional = "" if told["requestBody"]["required"] else ", optional"
        parts += [f"<h4>Body{optional}</h4>", _content(told["requestBody"]["content"])]
    for status, response in told["responses"].items():
        content = _content(response.get("content", {})) if int(status) < 400 else ""
        parts.append(f'<h4>{escape(status)}</h4><p class="text">{escape(response["description"])}</p>{content}')
    return (
        f'<details id="{escape(told["operationId"])}"><summary><span class="method">{escape(method.upper())}</span> '
        f"<code>{escape(path)}</code> {escape(told['summary'])}</summary>{''.join(parts)}</details>"
    )


def _content(content: dict[str, Any]) -> str:
    return "".join(f"<p><code>{escape(media)}</code> {_link(what['schema'])}</p>" for media, what in content.items())


def _link(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    return f"<code>{escape(_short(schema))}</code>"


def _short(schema: dict[str, Any]) -> str:
    text = json.dumps({name: value for name, value in schema.items() if name not in ("title", "description")})
    return text if len(text) <= 200 else f"{text[:200]} …"


def _schema(schema: dict[str, Any]) -> str:
    return f"<pre>{escape(json.dumps(schema, indent=2, ensure_ascii=False))}</pre>"
