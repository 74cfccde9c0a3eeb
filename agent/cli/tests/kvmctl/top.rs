//! The live view of `kvmctl top`, in a terminal.

use crate::support::Agent;
use crate::support::terminal::Terminal;
use nix::sys::signal::Signal;

const LEAVES: &str = "\x1b[?25h\x1b[?1049l";

fn top(agent: &Agent) -> Terminal {
    Terminal::start(&agent.command(&["top", "--interval", "100ms"]), 80, 24)
}

/// The names in the first column.
fn names(screen: &[String]) -> Vec<&str> {
    let rows = screen.iter().skip(2).filter(|row| !row.is_empty());
    rows.filter_map(|row| row.split_whitespace().next())
        .collect()
}

#[test]
fn a_live_view_fits_its_screen_and_heeds_keys() {
    let agent = Agent::new();
    let _server = agent.serve();
    let mut top = top(&agent);
    let screen = top.wait_for("figures", |screen| screen[3].contains("500m"));
    assert!(screen[0].starts_with("2 guests by name; "), "{screen:?}");
    assert!(
        screen[1].starts_with("NAME") && screen[1].ends_with("TX/S"),
        "{screen:?}"
    );
    assert_eq!(names(&screen), ["db", "web"]);

    top.type_in("c");
    let screen = top.wait_for("order by CPU", |screen| screen[0].contains("by CPU"));
    assert_eq!(names(&screen), ["web", "db"]);
    top.type_in("m\x1b[3~n");
    top.wait_for("order by name", |screen| screen[0].contains("by name"));

    // No wider and no higher than the screen, also right after a resize.
    top.resize(62, 3);
    let screen = top.wait_for("a small screen", |screen| screen[2].contains("db"));
    assert!(screen[1].ends_with("TX/S"), "{screen:?}");
    for (keys, name) in [
        ("\x1b[B", "web"),
        ("\x1b[B\x1b[A", "db"),
        ("\x1b[F", "web"),
        ("g\x1b[H", "db"),
    ] {
        top.type_in(keys);
        top.wait_for(name, |screen| screen[2].starts_with(name));
    }
    top.resize(120, 40);
    top.wait_for("a large screen", |screen| names(screen) == ["db", "web"]);
    top.type_in("q");
    assert_eq!(top.wait().code(), Some(0));
    top.wait_printed(LEAVES);
}

#[test]
fn a_live_view_outlives_the_agent_and_leaves_the_terminal_as_it_was_however_it_ends() {
    let agent = Agent::new();
    let server = agent.serve();
    let mut top = top(&agent);
    top.wait_for("guests", |screen| screen[0].starts_with("2 guests"));
    drop(server);
    top.wait_for("silence", |screen| {
        screen[0].starts_with("the agent does not answer")
    });
    let _server = agent.serve();
    top.wait_for("guests", |screen| screen[0].starts_with("2 guests"));
    top.type_in("\x03");
    assert_eq!(top.wait().code(), Some(0));

    let mut terminated = self::top(&agent);
    terminated.wait_for("guests", |screen| screen[0].starts_with("2 guests"));
    terminated.signal(Signal::SIGTERM);
    assert_eq!(terminated.wait().code(), Some(0));
    terminated.wait_printed(LEAVES);
}
