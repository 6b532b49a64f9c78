"""`falkirk check`: preflight checks of a flow."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from falkirk.cli.options import run_options, settings_from
from falkirk.runtime.inspect.check import Finding, check
from falkirk.stream.flow.load import load_flow


@click.command(name="check")
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, as described above.")
def check_command(target: str, as_json: bool, **options: Any) -> None:
    """Run preflight checks: brokers, topics, records, permissions, disk, checkpoint store, Spark. Changes nothing.

    \b
    falkirk check app:flow --brokers broker-1:9092 --state-dir /var/lib/app --checkpoints s3://bucket/app

    \b
    --json prints a list of objects.
      what, ok, words     what was checked, and the result
      hint                what to do, if it failed or is a warning
      warning             the flow runs, and may do something else than you expect
    The exit code is 0 if all checks pass, 1 if not.
    """
    settings = settings_from(workers=1, **options)
    plan = load_flow(target).plan(settings.prefix)
    console, found = Console(highlight=False), list[Finding]()
    for finding in check(plan, settings):
        found.append(finding)
        if not as_json:
            mark = Text("✓ ", "green") if finding.ok else Text("✗ ", "red")
            mark = Text("! ", "yellow") if finding.warning else mark
            hint = Text(f"\n  to do: {finding.hint}", "yellow") if finding.hint else ""
            console.print(Text.assemble(mark, (finding.what, "bold"), f"  {finding.words}", hint), soft_wrap=True)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    sys.exit(0 if all(finding.ok for finding in found) else 1)
