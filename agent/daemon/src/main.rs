//! `kvmlet`.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    agent_daemon::main()
}
