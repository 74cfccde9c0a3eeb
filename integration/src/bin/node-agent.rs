//! Runs inside a node: executes what the tests ask for over a virtio-serial port.
//!
//! The main thread reads frames. Each session has a thread of its own that ends with the session.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use integration::batches;
use integration::wire::{Frame, Kind, Outcome, PORT, Request};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// After the program's end its output is waited for this long: a daemon that it left behind may
/// hold the pipe open for ever.
const OUTPUT_GRACE: Duration = Duration::from_millis(300);

type Wire = Arc<Mutex<File>>;

/// What the main thread passes on to a session.
enum Input {
    Bytes(Vec<u8>),
    End,
    Kill,
}

fn main() -> io::Result<()> {
    // On a corner of the tests' own machine the channel is a socket in the place of standard input.
    let inherited = std::env::args()
        .nth(1)
        .is_some_and(|argument| argument == "--inherited");
    let mut reader = if inherited {
        File::from(io::stdin().as_fd().try_clone_to_owned()?)
    } else {
        // A port can be opened only once.
        OpenOptions::new().read(true).write(true).open(port()?)?
    };
    let wire: Wire = Arc::new(Mutex::new(reader.try_clone()?));
    let mut sessions: HashMap<u32, Sender<Input>> = HashMap::new();
    send(&wire, &Frame::new(Kind::Hello, 0, Vec::new()));
    loop {
        let Ok(frame) = Frame::read(&mut reader) else {
            if inherited {
                // Whoever made the corner is gone, or wants it to go. With the first process of the corner everything in it
                // ends at once, so what must not do that ends before.
                batches::end_agents_and_vmms();
                return Ok(());
            }
            // While nobody is connected on the host, reads end at once.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        match frame.kind {
            Kind::Ping => send(&wire, &Frame::new(Kind::Hello, 0, Vec::new())),
            Kind::Start => {
                let (input, inbox) = channel();
                sessions.insert(frame.session, input);
                let wire = Arc::clone(&wire);
                std::thread::spawn(move || {
                    let outcome = serde_json::from_slice(&frame.payload)
                        .map_err(io::Error::from)
                        .and_then(|request| serve(request, frame.session, &wire, inbox))
                        .unwrap_or_else(|error| Outcome::Failed(error.to_string()));
                    if let Ok(end) = Frame::json(Kind::End, frame.session, &outcome) {
                        send(&wire, &end);
                    }
                });
            }
            Kind::Input => pass(&mut sessions, frame.session, Input::Bytes(frame.payload)),
            Kind::InputEnd => pass(&mut sessions, frame.session, Input::End),
            Kind::Kill => pass(&mut sessions, frame.session, Input::Kill),
            Kind::Hello | Kind::Output | Kind::Errors | Kind::End => {}
        }
    }
}

/// The device of the virtio-serial port, found by its name.
fn port() -> io::Result<PathBuf> {
    for _ in 0..200 {
        for entry in fs::read_dir("/sys/class/virtio-ports")
            .into_iter()
            .flatten()
            .flatten()
        {
            if fs::read_to_string(entry.path().join("name"))?.trim() == PORT {
                return Ok(Path::new("/dev").join(entry.file_name()));
            }
        }
        // The port appears when the kernel has probed the device; init runs without udev, which would signal it.
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(io::Error::other(
        "the node has no port named kvmlet.node-agent",
    ))
}

/// A session that ended takes no input any more; what still comes for it is dropped.
fn pass(sessions: &mut HashMap<u32, Sender<Input>>, session: u32, input: Input) {
    if let Some(inbox) = sessions.get(&session)
        && inbox.send(input).is_err()
    {
        sessions.remove(&session);
    }
}

/// When the port fails no error can be sent; the node's log has it.
fn send(wire: &Wire, frame: &Frame) {
    let mut port = wire.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = frame.write(&mut *port) {
        eprintln!("node-agent: {error}");
    }
}

fn serve(
    request: Request,
    session: u32,
    wire: &Wire,
    inbox: Receiver<Input>,
) -> io::Result<Outcome> {
    match request {
        Request::Exec {
            argv,
            env,
            timeout_ms,
            terminal,
        } => {
            let timeout = timeout_ms.map(Duration::from_millis);
            let program = Program::start(&argv, env, terminal)?;
            Ok(program.follow(session, wire, inbox, timeout))
        }
        Request::Put { path, mode } => put(Path::new(&path), mode, &inbox),
        Request::Get { path } => {
            relay(File::open(&path)?, Kind::Output, session, wire);
            Ok(Outcome::Done)
        }
    }
}

fn put(path: &Path, mode: u32, inbox: &Receiver<Input>) -> io::Result<Outcome> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // A running program cannot be overwritten, but replaced.
    let partial = path.with_extension("partial");
    let mut file = File::create(&partial)?;
    for input in inbox {
        match input {
            Input::Bytes(bytes) => file.write_all(&bytes)?,
            Input::End => break,
            Input::Kill => return Err(io::Error::other("cancelled")),
        }
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    fs::rename(partial, path)?;
    Ok(Outcome::Done)
}

/// Sends all of `source` as frames of `kind`.
fn relay(mut source: impl Read, kind: Kind, session: u32, wire: &Wire) {
    let mut buffer = vec![0; 64 << 10];
    // A terminal whose last user is gone reports an error, not an end.
    while let Ok(count @ 1..) = source.read(&mut buffer) {
        send(wire, &Frame::new(kind, session, buffer[..count].to_vec()));
    }
}

struct Program {
    child: std::process::Child,
    input: Option<Box<dyn Write + Send>>,
    outputs: Vec<(Kind, Box<dyn Read + Send>)>,
}

impl Program {
    fn start(argv: &[String], env: Vec<(String, String)>, terminal: bool) -> io::Result<Self> {
        let [program, arguments @ ..] = argv else {
            return Err(io::Error::other("no program is named"));
        };
        if terminal {
            return Self::start_in_terminal(argv, env);
        }
        let mut child = Command::new(program)
            .args(arguments)
            .envs(env)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let input = child
            .stdin
            .take()
            .map(|pipe| Box::new(pipe) as Box<dyn Write + Send>);
        let mut outputs: Vec<(Kind, Box<dyn Read + Send>)> = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            outputs.push((Kind::Output, Box::new(pipe)));
        }
        if let Some(pipe) = child.stderr.take() {
            outputs.push((Kind::Errors, Box::new(pipe)));
        }
        Ok(Self {
            child,
            input,
            outputs,
        })
    }

    /// `setsid -c` makes the terminal the controlling one, which takes no unsafe code here. No process
    /// group is made before: a leader of one can only become leader of a session by a fork, whose
    /// parent would end at once.
    fn start_in_terminal(argv: &[String], env: Vec<(String, String)>) -> io::Result<Self> {
        let terminal = nix::pty::openpty(None, None)?;
        let slave = File::from(terminal.slave);
        let child = Command::new("setsid")
            .arg("-c")
            .args(argv)
            .envs(env)
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave)
            .spawn()?;
        let master = File::from(terminal.master);
        let input = Box::new(master.try_clone()?) as Box<dyn Write + Send>;
        Ok(Self {
            child,
            input: Some(input),
            outputs: vec![(Kind::Output, Box::new(master))],
        })
    }

    /// Passes input and output on until the program ends.
    fn follow(
        mut self,
        session: u32,
        wire: &Wire,
        inbox: Receiver<Input>,
        timeout: Option<Duration>,
    ) -> Outcome {
        let Ok(group) = i32::try_from(self.child.id()).map(Pid::from_raw) else {
            return Outcome::Failed("a process id beyond 31 bits".to_owned());
        };
        let (done, all_read) = channel::<()>();
        for (kind, source) in self.outputs {
            let (wire, done) = (Arc::clone(wire), done.clone());
            std::thread::spawn(move || {
                relay(source, kind, session, &wire);
                drop(done);
            });
        }
        drop(done);
        let input = self.input.take();
        std::thread::spawn(move || feed(input, inbox, group));
        let (ended, status) = channel();
        let mut child = self.child;
        std::thread::spawn(move || ended.send(child.wait()));
        let status = match timeout {
            None => status.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(limit) => status.recv_timeout(limit),
        };
        let outcome = match status {
            Ok(Ok(status)) => status.code().map_or_else(
                || Outcome::Signalled(status.signal().unwrap_or_default()),
                Outcome::Exited,
            ),
            Ok(Err(error)) => Outcome::Failed(error.to_string()),
            Err(_) => {
                // It may have ended in this moment, which is as good.
                killpg(group, Signal::SIGKILL).ok();
                Outcome::TimedOut
            }
        };
        // Ends by disconnection once every reader is done.
        all_read.recv_timeout(OUTPUT_GRACE).ok();
        outcome
    }
}

/// Writes what comes to the program's input; a program that does not read it is no error.
fn feed(mut input: Option<Box<dyn Write + Send>>, inbox: Receiver<Input>, group: Pid) {
    for message in inbox {
        match message {
            Input::Bytes(bytes) => {
                let failed = input
                    .as_mut()
                    .is_some_and(|pipe| pipe.write_all(&bytes).is_err());
                if failed {
                    input = None;
                }
            }
            Input::End => input = None,
            // It may have ended in this moment, which is as good.
            Input::Kill => {
                killpg(group, Signal::SIGKILL).ok();
            }
        }
    }
}
