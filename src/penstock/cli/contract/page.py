"""Renders the comparison of `dw` with the contract's command line as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.cli.contract.request import REQUESTS
from penstock.cli.contract.table import ALIASES, REFUSED

_OPENING = """\
# The `dw` command line

<!-- Written by `penstock docs dw`. Change the tables in `src/penstock/cli/contract`, then run it again. -->

`dw` is a drop-in for the command line of the Durable Workflow contract: scripts that use its commands, options and
exit codes run unchanged against this server. `penstock` is the same program in our own spelling, and every command in
the [command line reference](cli.md) is also a command of `dw`, written `noun:verb` or `noun verb`.

| option | meaning |
|---|---|
| `--output table`, `json`, `jsonl` | format; `--json` is `--output json`, `jsonl` prints one row of a list per line |
| `--env NAME` | the environment to use; else `DW_ENV`, else the one that `dw env:use` selected |
| `--server`, `-s`, `--namespace`, `--token` | as for `penstock`; flags win over variables, they over the environment |
| `--tls-verify BOOL` | whether to verify certificates; else `DURABLE_WORKFLOW_TLS_VERIFY`, else the environment |

Environments are kept in `~/.config/dw/config.json` (`XDG_CONFIG_HOME` and `DW_CONFIG_HOME` move it), in the format of
the contract's command line, readable by their owner only. An unknown name is refused; no other is used instead.

Every JSON answer has the `namespace` that it is about, also in the rows of a list. An error is JSON too: `error`,
`exit_code`, `command`, `namespace` and `reason`, and with an answer of the server `status_code` and `server_response`.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | usage, or a request that the server refused as not valid or in conflict |
| 3 | no connection to the server |
| 4 | authentication or permission |
| 5 | not found |
| 6 | error of the server |
| 7 | timed out |

Three things differ for all commands: a token is sent over plain http to another machine only with `--insecure`, the
token of an environment only to the server of that environment, and an unknown option ends with code 2.

"""


def contract_markdown() -> str:
    """The reference page."""
    return _OPENING + "\n".join(["| command | here | |", "|---|---|---|", *_rows()]) + "\n"


def _rows() -> Iterator[str]:
    for name in sorted({*ALIASES, *REQUESTS, *REFUSED}):
        if name in REFUSED:
            yield f"| `{name}` | not here | {REFUSED[name]} |"
        elif name in REQUESTS:
            row = REQUESTS[name]
            yield f"| `{name}` | same | `{row.method} /api/{row.path}` |"
        else:
            alias = ALIASES[name]
            ours = f"`{'dw' if alias.ours.startswith('env ') else 'penstock'} {alias.ours}`"
            yield (
                f"| `{name}` | differs | {ours}: {alias.differs} |"
                if alias.differs
                else f"| `{name}` | same | {ours} |"
            )
