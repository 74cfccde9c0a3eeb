//! A terminal: what a program paints on it, and what a person types.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::{Pid, ttyname};

const PATIENCE: Duration = Duration::from_secs(20);

/// A program in a terminal of its own. It is killed when this is dropped.
pub struct Terminal {
    child: Child,
    master: File,
    slave: OwnedFd,
    before: Termios,
    painted: Arc<Mutex<Vec<u8>>>,
    size: (usize, usize),
    /// Whether the program has painted what fits since the size changed.
    is_size_known: Cell<bool>,
}

impl Terminal {
    /// Starts it in a terminal of so many columns and lines.
    pub fn start(command: &Command, columns: u16, lines: u16) -> Self {
        let size = Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let end = || pty.slave.try_clone().unwrap();
        // As its controlling terminal, which takes no unsafe code here.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let painted = Arc::new(Mutex::new(Vec::new()));
        let (heard, mut reader) = (Arc::clone(&painted), File::from(pty.master));
        let master = reader.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                heard.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self {
            child,
            master,
            slave: pty.slave,
            before,
            painted,
            size: (columns.into(), lines.into()),
            is_size_known: Cell::new(true),
        }
    }

    pub fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Another size, as when a window is pulled.
    pub fn resize(&mut self, columns: usize, lines: usize) {
        let name = ttyname(self.slave.as_fd()).unwrap();
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let status = Command::new("stty")
            .arg("-F")
            .arg(name)
            .args(["cols", &columns, "rows", &lines])
            .status();
        assert!(status.unwrap().success());
        self.size = (columns.parse().unwrap(), lines.parse().unwrap());
        self.painted.lock().unwrap().clear();
        self.is_size_known.set(false);
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, signal).unwrap();
    }

    /// Waits until the screen is as wanted, and is it.
    pub fn wait_for(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if let Ok(screen) = &screen
                && is_so(screen)
            {
                self.is_size_known.set(true);
                return screen.clone();
            }
            // What was on its way when the size changed is of the old one, and is painted over.
            let is_of_old_size = screen.is_err() && !self.is_size_known.get();
            assert!(
                Instant::now() < end && (screen.is_ok() || is_of_old_size),
                "no {what} in {screen:#?}"
            );
            if is_of_old_size {
                self.painted.lock().unwrap().clear();
            }
            // The thread that reads the terminal signals nothing.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The visible lines, from top to bottom.
    fn screen(&self) -> Result<Vec<String>, String> {
        screen(&self.printed(), self.size)
    }

    fn printed(&self) -> String {
        String::from_utf8_lossy(&self.painted.lock().unwrap()).into_owned()
    }

    /// Waits until the program has ended; the terminal must be as it was.
    pub fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < end,
                "it does not end: {:#?}",
                self.screen()
            );
            // A wait without a limit would hang as long as the program does.
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(tcgetattr(&self.slave).unwrap() == self.before);
        status
    }

    /// Waits until this is the last that was printed; what a program prints may come after its end.
    pub fn wait_printed(&self, last: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.printed().ends_with(last) {
            assert!(Instant::now() < end, "{:?}", self.printed());
            // As above.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// As xterm would show it, as far as it is made use of. What would not be on the screen is an error.
fn screen(printed: &str, (columns, lines): (usize, usize)) -> Result<Vec<String>, String> {
    let mut shown = vec![String::new(); lines];
    let mut line = 0;
    let mut rest = printed;
    while let Some(first) = rest.chars().next() {
        let sequences = [("\x1b[?1049h", "\x1b[?1049l"), ("\x1b[?25l", "\x1b[?25h")];
        let mode = sequences
            .iter()
            .find_map(|(set, unset)| rest.strip_prefix(set).or_else(|| rest.strip_prefix(unset)));
        rest = if let Some(rest) = mode {
            rest
        } else if let Some(rest) = rest.strip_prefix("\x1b[H") {
            line = 0;
            rest
        } else if let Some(rest) = rest.strip_prefix("\x1b[K") {
            // Only ever at the beginning of a line.
            shown[line].clear();
            rest
        } else if let Some(rest) = rest.strip_prefix("\x1b[J") {
            shown[line..].iter_mut().for_each(String::clear);
            rest
        } else if let Some(rest) = rest.strip_prefix("\r\n") {
            line += 1;
            if line >= lines {
                return Err(format!("it scrolls: {printed:?}"));
            }
            rest
        } else {
            // A sequence of which only the beginning is there yet, or something that a view should not send.
            if first == '\x1b' || first == '\r' {
                break;
            }
            shown[line].push(first);
            if shown[line].chars().count() > columns {
                return Err(format!("it is too wide: {shown:?}"));
            }
            &rest[first.len_utf8()..]
        };
    }
    Ok(shown)
}
