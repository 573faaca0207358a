#!/usr/bin/env bash
# A Flink cluster on this machine, for trying a job out: one job manager and task managers that listen on
# localhost alone. Its parts come from PyPI; only the job server is fetched from a Maven repository.
set -euo pipefail

FLINK_VERSION=2.2
FLINK_LIBRARIES=apache-flink-libraries==2.2.1
BEAM_VERSION=2.77.0

HOME_DIR=${SBERT_BEAM_FLINK:-$HOME/.cache/sbert-beam/flink}
PYTHON=${PYTHON:-python3}
REST_PORT=${FLINK_REST_PORT:-18081}
RPC_PORT=${FLINK_RPC_PORT:-16123}
TASK_MANAGERS=${FLINK_TASK_MANAGERS:-2}

JAR_NAME=beam-runners-flink-$FLINK_VERSION-job-server-$BEAM_VERSION.jar
JAR=${FLINK_JOB_SERVER_JAR:-$HOME_DIR/$JAR_NAME}
RUN_DIR=$HOME_DIR/run

usage() {
    cat <<TEXT
usage: flink.sh COMMAND
  start              start the cluster, installing Flink first if need be
  status             shows the state of the cluster
  fetch              fetch the Beam job server, $JAR_NAME
  submit JOB FLAGS   run a job of sbert-beam on the cluster: submit embed --input ... --output ...
  stop               stop the cluster
variables: SBERT_BEAM_FLINK (folder), PYTHON, MAVEN_REPOSITORY, FLINK_JOB_SERVER_JAR, FLINK_REST_PORT,
  FLINK_RPC_PORT, FLINK_TASK_MANAGERS
TEXT
}

fail() {
    echo "flink.sh: $*" >&2
    exit 1
}

overview() {
    curl --silent --fail --max-time 5 "http://localhost:$REST_PORT/overview"
}

install_flink() {
    [ -d "$HOME_DIR/pyflink/lib" ] && return
    echo "installing $FLINK_LIBRARIES (300 MB) into $HOME_DIR" >&2
    local wheels
    wheels=$(mktemp -d)
    "$PYTHON" -m pip download --quiet --no-deps --dest "$wheels" "$FLINK_LIBRARIES" ||
        fail "pip found no $FLINK_LIBRARIES: check the network and pip's index"
    mkdir -p "$HOME_DIR"
    "$PYTHON" -m zipfile -e "$wheels"/*.whl "$HOME_DIR"
    rm -r "$wheels"
}

write_config() {
    mkdir -p "$RUN_DIR/conf"
    cat >"$RUN_DIR/conf/config.yaml" <<YAML
jobmanager.rpc.address: localhost
jobmanager.rpc.port: $RPC_PORT
jobmanager.bind-host: localhost
jobmanager.memory.process.size: 1200m
taskmanager.host: localhost
taskmanager.bind-host: localhost
taskmanager.numberOfTaskSlots: 1
parallelism.default: $TASK_MANAGERS
rest.address: localhost
rest.bind-address: localhost
rest.port: $REST_PORT
YAML
}

# The wheel has no start scripts: this starts the classes that they would.
start_java() {
    local name=$1 heap=$2 class=$3 package
    shift 3
    local options=(
        "-Xmx$heap"
        --add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED
        --add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED
    )
    for package in java.lang java.lang.reflect java.net java.io java.nio sun.nio.ch java.text java.time java.util \
        java.util.concurrent java.util.concurrent.atomic java.util.concurrent.locks; do
        options+=("--add-opens=java.base/$package=ALL-UNNAMED")
    done
    FLINK_CONF_DIR=$RUN_DIR/conf nohup java "${options[@]}" -cp "$HOME_DIR/pyflink/lib/*" "$class" \
        --configDir "$RUN_DIR/conf" "$@" >"$RUN_DIR/$name.log" 2>&1 &
    echo $! >"$RUN_DIR/$name.pid"
}

# These sum up to a process; Flink's own start script would compute them.
task_manager_memory() {
    printf '%s\n' -D taskmanager.cpu.cores=1.0 \
        -D taskmanager.memory.task.heap.size=300m -D taskmanager.memory.task.off-heap.size=0b \
        -D taskmanager.memory.framework.heap.size=128m -D taskmanager.memory.framework.off-heap.size=128m \
        -D taskmanager.memory.managed.size=300m \
        -D taskmanager.memory.network.min=64m -D taskmanager.memory.network.max=64m \
        -D taskmanager.memory.jvm-metaspace.size=256m \
        -D taskmanager.memory.jvm-overhead.min=192m -D taskmanager.memory.jvm-overhead.max=192m
}

start() {
    command -v java >/dev/null || fail "java is not installed: Flink needs Java 17"
    ! overview >/dev/null || fail "something answers on port $REST_PORT already: see flink.sh status"
    install_flink
    write_config
    local memory number
    mapfile -t memory < <(task_manager_memory)
    start_java job-manager 512m org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint
    for number in $(seq "$TASK_MANAGERS"); do
        start_java "task-manager-$number" 450m org.apache.flink.runtime.taskexecutor.TaskManagerRunner "${memory[@]}"
    done
    for _ in $(seq 180); do
        if [[ $(overview || true) == *"\"slots-available\":$TASK_MANAGERS,"* ]]; then # one of each task manager
            echo "Flink is ready: http://localhost:$REST_PORT, $TASK_MANAGERS task managers"
            return
        fi
        sleep 1
    done
    stop
    fail "the cluster did not come up in 3 minutes: see $RUN_DIR/*.log"
}

status() {
    overview || fail "no cluster answers on port $REST_PORT: flink.sh start"
    echo
}

fetch() {
    [ -f "$JAR" ] && return
    local instead="or FLINK_JOB_SERVER_JAR to a copy of $JAR_NAME"
    [ -n "${MAVEN_REPOSITORY:-}" ] || fail "set MAVEN_REPOSITORY to the address of a Maven repository, $instead"
    local artifact=beam-runners-flink-$FLINK_VERSION-job-server
    local url=$MAVEN_REPOSITORY/org/apache/beam/$artifact/$BEAM_VERSION/$JAR_NAME
    mkdir -p "$(dirname "$JAR")"
    if ! curl --silent --show-error --fail --location --connect-timeout 10 --output "$JAR.part" "$url"; then
        rm -f "$JAR.part"
        fail "cannot fetch $url: set MAVEN_REPOSITORY to a Maven repository that this machine reaches, $instead"
    fi
    mv "$JAR.part" "$JAR"
    echo "$JAR"
}

submit() {
    [ $# -gt 0 ] || fail "submit what? flink.sh submit embed --input ... --output ..."
    overview >/dev/null || fail "no cluster answers on port $REST_PORT: flink.sh start"
    fetch
    # LOOPBACK: Flink calls back into the process that submits, so nothing has to be staged on this machine.
    exec sbert-beam "$@" --runner=FlinkRunner --flink_version="$FLINK_VERSION" --flink_job_server_jar="$JAR" \
        --flink_master="localhost:$REST_PORT" --parallelism="$TASK_MANAGERS" --environment_type=LOOPBACK
}

stop() {
    local file pid
    for file in "$RUN_DIR"/*.pid; do
        [ -f "$file" ] || continue
        pid=$(cat "$file")
        rm "$file"
        kill "$pid" 2>/dev/null || continue
        timeout 20 tail --pid="$pid" -f /dev/null || kill -KILL "$pid"
    done
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
    start | status | fetch | submit | stop) "$command" "$@" ;;
    *)
        usage
        exit 2
        ;;
esac
