"""Entry point of `holdfast`: finds the command, and turns errors into one sentence and an exit status.

Rules: exit 0 good, 1 the answer is bad news, 2 usage or configuration error with a sentence on what to do.
A command's module is imported when it is run, so that `holdfast --help` loads click alone. With --json every command
leaves exactly one JSON document on standard output, also when it fails; progress and errors go to standard error.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import click
from click.shell_completion import CompletionItem

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.version import EXTRAS, missing
from holdfast.common.visible import visible_lines

#: Errors of a write to standard output without room, or without a reader.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)

GOOD, BAD_NEWS, USAGE, INTERRUPTED = 0, 1, 2, 130

#: Command -> module below holdfast.tools.cli.commands, and its line in --help. The function is named as the
#: command, with `_` for `-`.
COMMANDS = {
    "local": ("servers", "Run a whole cluster on this machine, in the foreground."),
    "master": ("servers", "Run one master."),
    "worker": ("servers", "Run one worker."),
    "status": ("status", "Show the state of the cluster: masters, leader, workers, problems."),
    "workers": ("status", "List the workers and their directories."),
    "top": ("top", "Show workers and shuffles with their throughput, live."),
    "events": ("events", "Show the latest events."),
    "apps": ("apps", "List the applications and what keeps them."),
    "shuffles": ("shuffles", "List the shuffles and what keeps them; show what is in one."),
    "doctor": ("doctor", "Find problems on this host, and show what to do."),
    "drain": ("draining", "Have workers take nothing new, and wait until they may go."),
    "undrain": ("draining", "Have draining workers take new data again."),
    "remove": ("draining", "Say that lost workers never come back."),
    "handover": ("masters", "Have another master lead, without an election's pause."),
    "backup": ("masters", "Copy a master's state to a file, while it runs or not."),
    "restore": ("masters", "Make an empty master's directory from a backup."),
    "forget": ("apps", "Drop an application, or one shuffle of it, now."),
    "export": ("export", "Write a committed shuffle's rows to files, without Spark."),
    "placement": ("placement", "Explain where partitions were placed, or would be."),
    "reload": ("placement", "Have the masters read their placement settings again."),
    "inspect": ("offline", "Show what a storage directory holds; no server is needed."),
    "verify": ("offline", "Check every byte of a storage directory; no server is needed."),
    "spark-jar": ("plugin", "Print the path of the Spark plug-in's jar, compiling it if needed."),
    "spark-conf": ("plugin", "Print the Spark settings that send shuffles through Holdfast."),
    "ca": ("security", "Make certificates for trials of a secured cluster."),
    "token": ("security", "Make a token for a user, a viewer or an admin."),
    "completion": ("completion", "Print what completes `holdfast` in a shell."),
    "drill": ("drill", "Kill servers on purpose and check that nothing is forgotten."),
    "bench": ("bench", "Measure this machine and Holdfast on it."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not when they are listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order in which people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None if no command has that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"holdfast.tools.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, from the table alone."""
        named = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return named or super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        try:
            click.echo(f"holdfast {version('holdfast')}")
        except PackageNotFoundError:
            click.echo("holdfast, from a source tree")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def holdfast() -> None:
    """Holdfast, a remote shuffle service for Spark: it keeps what it has acknowledged.

    Commands for a cluster take --masters, or HOLDFAST_MASTERS: the masters' HTTP addresses with commas in between.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names are any text, terminals can show some
    sys.exit(run(words))


def run(words: list[str]) -> int:
    """Run one command line and return its exit status."""
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):  # bytes that are no text came as these
            return _fail(words, f"{word!r} is not text in UTF-8: write it in UTF-8, or rename the file", USAGE)
    try:
        status = holdfast.main(words, prog_name="holdfast", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.ClickException as error:
        return _fail(words, error.format_message(), USAGE, _hint(error))
    except ConfigError as error:
        return _fail(words, str(error), USAGE)
    except HoldfastError as error:
        return _fail(words, str(error), BAD_NEWS)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        return _fail(words, missing(f"holdfast {words[0]}", error.name), USAGE)
    except OSError as error:
        if error.filename is not None:
            return _fail(words, f"{error.filename}: {error.strerror}", BAD_NEWS)
        if error.errno not in _NOT_WRITTEN:
            raise
        return _not_written(error)
    return status if isinstance(status, int) else GOOD


def _not_written(error: OSError) -> int:
    """Standard output took not all of it: it is closed to what is still in buffers, and the error is shown on the other
    one, unless a pager or `head` has just had enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:
        click.echo(f"holdfast: standard output takes no more: {error.strerror}", err=True)
    return BAD_NEWS


def _hint(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return f' See "{ctx.command_path} --help".' if ctx is not None else ""


def _fail(words: list[str], sentence: str, status: int, hint: str = "") -> int:
    if "--json" in words:
        click.echo(json.dumps({"error": sentence, "exit": status}))
    click.echo(f"holdfast: {visible_lines(sentence)}{hint}", err=True)
    return status


if __name__ == "__main__":
    main()
