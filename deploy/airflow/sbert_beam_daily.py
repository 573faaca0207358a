"""An Airflow DAG: the jobs one after the other, every night, on the machine of the Airflow worker.

Each task may be retried as it is: a job goes on from what it finished. For Dataflow add its flags to each command but
that of the report: see docs/operating.md.
"""

import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, chain

INPUT = "/data/sentences"
OUTPUT = "/data/out"

COMMANDS = {
    "embed": f"sbert-beam embed --input {INPUT} --output {OUTPUT} --model /opt/model --workers 4",
    "mine": f"sbert-beam mine --input {OUTPUT}/embeddings --output {OUTPUT} --workers 4",
    "cluster": f"sbert-beam cluster --input {OUTPUT} --output {OUTPUT} --workers 4",
    "report": f"sbert-beam report --input {OUTPUT}",
}


with DAG(
    dag_id="sbert_beam_daily",
    schedule="0 3 * * *",
    start_date=datetime.datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # two runs must not write to one folder
    default_args={"retries": 2, "retry_delay": datetime.timedelta(minutes=5)},
) as dag:
    chain(*(BashOperator(task_id=name, bash_command=command) for name, command in COMMANDS.items()))
