"""Runs ingest once an hour, and again when a run asks for it (Airflow 3.3 or newer).

The exit code tells Airflow what to do: a run that deferred something is retried
at the time that it names, a run that needs a person fails immediately, and a run
that found nothing new is skipped.
"""

import datetime as dt
import json
import os
import subprocess

from airflow.sdk import RetryDecision, RetryPolicy, dag, task
from airflow.sdk.exceptions import AirflowSkipException

AGAIN = {75, 129, 130, 143}  # deferred, interrupted
NOTHING_NEW = 99


class IngestError(Exception):
    """A run that did not finish, with the reason from its summary."""

    def __init__(self, code: int, stopped: dict):
        super().__init__(f"ingest: exit {code}: {stopped.get('reason', 'see the log')}")
        self.code = code
        self.retry_at = stopped.get("retry_at")


class RetryWhenToldTo(RetryPolicy):
    """Retries at the time that ingest names; other failures need a person."""

    def evaluate(self, exception, try_number, max_tries, context=None):
        if not isinstance(exception, IngestError):
            return RetryDecision.default()
        if exception.code not in AGAIN:
            return RetryDecision.fail(str(exception))
        if exception.retry_at is None:
            return RetryDecision.retry(reason=str(exception))
        wait = dt.datetime.fromisoformat(exception.retry_at) - dt.datetime.now(dt.timezone.utc)
        return RetryDecision.retry(max(wait, dt.timedelta(seconds=1)), str(exception))


@task(
    retries=6,
    retry_delay=dt.timedelta(minutes=1),  # for a lost worker; ingest names its own times
    retry_policy=RetryWhenToldTo(),
    execution_timeout=dt.timedelta(hours=2),
)
def ingest(*inputs: str) -> dict:
    command = ["ingest", "--json", f"--skip-exit-code={NOTHING_NEW}", *inputs]
    summary = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        try:
            for line in run.stdout:
                print(line, end="")  # one line per document, into the task's log
                summary = json.loads(line).get("summary", {})
        except BaseException:
            run.terminate()  # the task was cleared or timed out: ingest saves its state
            raise
    if run.returncode == NOTHING_NEW:
        raise AirflowSkipException("nothing has changed")
    if run.returncode != 0:
        raise IngestError(run.returncode, summary.get("stopped") or {})
    return summary


@dag(schedule="@hourly", start_date=dt.datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def documents():
    ingest(*os.environ.get("INGEST_INPUTS", "/data/docs").split())


documents()
