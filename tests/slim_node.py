"""A SLIM node on loopback: `python -m tests.slim_node PORT` says when it is up, and ends with its standard input."""

import sys

import slim_bindings


def main() -> None:
    slim_bindings.initialize_with_configs(
        tracing_config=slim_bindings.new_tracing_config(),
        runtime_config=slim_bindings.new_runtime_config(),
        service_config=[slim_bindings.new_service_config()],
    )
    node = slim_bindings.get_global_service()
    node.run_server(slim_bindings.new_insecure_server_config(f"127.0.0.1:{sys.argv[1]}"))
    print("up", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
