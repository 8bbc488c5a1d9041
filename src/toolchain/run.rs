//! Running a command: bounded output, a time limit, and an end for every process it started.
//!
//! The child leads a process group of its own. However the run ends, the group is killed, so that nothing of it goes
//! on writing where the next stage reads. A process that leaves the group on purpose is not found; should it hold the
//! output open, the run does not wait for it.

use super::classify::{Class, Finding};
use super::interrupt::Interrupt;
use super::log::{Log, LogReport};
use super::{Command, Missing, Tool};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use std::io::{self, PipeReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long it may take.
    pub timeout: Duration,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub enum ToolRun {
    /// The tool ended by itself, well or badly.
    Finished(Finished),
    /// There is no such tool.
    NotInstalled(Missing),
    /// It took too long and was ended, with every process it started.
    TimedOut {
        /// Its output so far.
        run: Finished,
        /// The limit.
        after: Duration,
    },
    /// The user asked to stop, and it was ended as above.
    Interrupted,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl End {
    /// Exit code 0.
    pub const fn is_success(self) -> bool {
        matches!(self, End::Code(0))
    }

    fn of(status: ExitStatus) -> End {
        // A shell in between reports the signal of its child as 128 and the signal's number.
        match (status.signal(), status.code()) {
            (Some(signal), _) => End::Signal(signal),
            (None, Some(code @ 129..=159)) => End::Signal(code - 128),
            (None, code) => End::Code(code.unwrap_or(-1)),
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Code(code) => write!(f, "exit code {code}"),
            End::Signal(signal) => match name(*signal) {
                Some(name) => write!(f, "signal {signal} ({name})"),
                None => write!(f, "signal {signal}"),
            },
        }
    }
}

/// Names of signals whose numbers are the same on Linux and macOS.
const fn name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        2 => "SIGINT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL; the system does that when memory runs out",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return None,
    })
}

/// A run that is over.
#[derive(Clone, Debug, Serialize)]
pub struct Finished {
    /// The command, without folders.
    pub argv: Vec<String>,
    /// How it ended.
    pub end: End,
    /// How long it took.
    pub seconds: f64,
    /// Its standard output.
    pub stdout: LogReport,
    /// Its standard error.
    pub stderr: LogReport,
}

impl Finished {
    /// The message of that class, on either stream.
    pub fn finding(&self, class: Class) -> Option<&Finding> {
        self.findings().find(|f| f.class == class)
    }

    /// Every known message of both streams.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.stderr.findings.iter().chain(&self.stdout.findings)
    }
}

/// Why a tool that is there could not be run.
#[derive(Debug, thiserror::Error)]
#[error("{program} could not be run")]
pub struct RunError {
    /// File name of the program.
    pub program: String,
    #[source]
    source: io::Error,
}

/// Runs `command`, which is `tool`'s.
///
/// # Errors
/// The system cannot start the program, or loses track of it.
pub fn run(tool: Tool, command: &Command, limits: Limits, interrupt: &Interrupt) -> Result<ToolRun, RunError> {
    let program = || command.argv().first().cloned().unwrap_or_default();
    match attempt(command, limits, interrupt) {
        Ok(ran) => Ok(ran),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(ToolRun::NotInstalled(Missing { tool, how_to_install: tool.how_to_install() }))
        }
        Err(source) => Err(RunError { program: program(), source }),
    }
}

fn attempt(command: &Command, limits: Limits, interrupt: &Interrupt) -> io::Result<ToolRun> {
    if interrupt.raised() {
        return Ok(ToolRun::Interrupted);
    }
    let started = Instant::now();
    let (handle, stdout, stderr) = start(command)?;
    let group = Group(handle.pids());
    let stopped = loop {
        if handle.try_wait()?.is_some() {
            break None;
        }
        if interrupt.raised() {
            break Some(Stopped::Interrupted);
        }
        if started.elapsed() >= limits.timeout {
            break Some(Stopped::TimedOut);
        }
        thread::sleep(pause(started.elapsed()));
    };
    let seconds = started.elapsed().as_secs_f64();
    group.kill();
    let status = handle.wait()?.status;
    let (stdout, stderr) = (stdout.finish(), stderr.finish());
    let run = Finished { argv: command.argv(), end: End::of(status), seconds, stdout, stderr };
    Ok(match stopped {
        None => ToolRun::Finished(run),
        Some(Stopped::TimedOut) => ToolRun::TimedOut { run, after: limits.timeout },
        Some(Stopped::Interrupted) => ToolRun::Interrupted,
    })
}

enum Stopped {
    TimedOut,
    Interrupted,
}

/// Short at first, for tools that only tell their version.
fn pause(elapsed: Duration) -> Duration {
    (elapsed / 10).clamp(Duration::from_millis(1), Duration::from_millis(50))
}

fn start(command: &Command) -> io::Result<(duct::Handle, Stream, Stream)> {
    let (stdout, stdout_end) = io::pipe()?;
    let (stderr, stderr_end) = io::pipe()?;
    let expression = command.env.iter().fold(duct::cmd(&command.program, &command.args), |e, (k, v)| e.env(k, v));
    // The expression holds the writing ends and has to go before the pipes can end.
    let handle = expression
        .stdin_null()
        .stdout_file(stdout_end)
        .stderr_file(stderr_end)
        .unchecked()
        .before_spawn(|child| {
            child.process_group(0);
            Ok(())
        })
        .start()?;
    Ok((handle, Stream::read(stdout), Stream::read(stderr)))
}

/// The process group of a child; killed when dropped, whatever goes wrong in between.
struct Group(Vec<u32>);

impl Group {
    fn kill(&self) {
        for pid in &self.0 {
            // After the leader has been waited for, its number could in theory be another's. Numbers are handed out
            // in turn, so it would take a full round of them within a millisecond.
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A stream that a thread reads into a log.
struct Stream {
    log: Arc<Mutex<Log>>,
    ended: Receiver<()>,
}

impl Stream {
    fn read(mut pipe: PipeReader) -> Stream {
        let log = Arc::new(Mutex::new(Log::default()));
        let (end, ended) = mpsc::channel();
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            let mut buffer = vec![0u8; 64 << 10];
            loop {
                match pipe.read(&mut buffer) {
                    Ok(n) if n > 0 => shared.lock().unwrap_or_else(PoisonError::into_inner).push(&buffer[..n]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Ok(_) | Err(_) => break,
                }
            }
            // Nobody listens any more where the stream was given up.
            let _ = end.send(());
        });
        Stream { log, ended }
    }

    /// What was read; the rest is given up where somebody outside the group holds the pipe open.
    fn finish(self) -> LogReport {
        match self.ended.recv_timeout(Duration::from_secs(2)) {
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        self.log.lock().unwrap_or_else(PoisonError::into_inner).report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: f64, interrupt: &Interrupt) -> ToolRun {
        let command = Command::new("/bin/sh").args(["-c", script]);
        run(Tool::CoreAiBuild, &command, Limits { timeout: Duration::from_secs_f64(timeout) }, interrupt).unwrap()
    }

    fn finished(script: &str) -> Finished {
        match shell(script, 60.0, &Interrupt::never()) {
            ToolRun::Finished(run) => run,
            other @ (ToolRun::NotInstalled(_) | ToolRun::TimedOut { .. } | ToolRun::Interrupted) => panic!("{other:?}"),
        }
    }

    /// Whether a process lives (and is no zombie).
    fn lives(pid: &str) -> bool {
        let state = std::process::Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap().stdout;
        !state.is_empty() && !state.starts_with(b"Z")
    }

    /// Processes end a moment after they are killed.
    fn ends(pid: &str) -> bool {
        (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            !lives(pid)
        })
    }

    #[test]
    fn how_it_ended() {
        assert_eq!(finished("exit 0").end, End::Code(0));
        assert_eq!(finished("exit 64").end, End::Code(64));
        assert_eq!(finished("kill -SEGV $$").end, End::Signal(11));
        assert_eq!(finished("exit 139").end, End::Signal(11), "as a shell reports it");
        assert_eq!(End::Signal(11).to_string(), "signal 11 (SIGSEGV)");
    }

    #[test]
    fn both_streams_are_read_apart() {
        let run = finished("echo out; echo err >&2; echo ERR >&2");
        assert_eq!((run.stdout.first_line().as_deref(), run.stdout.bytes), (Some("out"), 4));
        assert_eq!(run.stderr.last_lines, ["err", "ERR"]);
        assert_eq!(run.argv, ["sh", "-c", "echo out; echo err >&2; echo ERR >&2"]);
    }

    #[test]
    fn no_tool_is_no_error() {
        let command = Command::new("/nowhere/coreai-build");
        let ran = run(Tool::CoreAiBuild, &command, Limits { timeout: Duration::MAX }, &Interrupt::never()).unwrap();
        assert!(matches!(ran, ToolRun::NotInstalled(Missing { tool: Tool::CoreAiBuild, .. })));
        let folder = run(Tool::Uv, &Command::new("/"), Limits { timeout: Duration::MAX }, &Interrupt::never());
        assert_eq!(folder.unwrap_err().to_string(), "/ could not be run");
    }

    #[test]
    fn a_timeout_ends_the_whole_group() {
        let ToolRun::TimedOut { run, .. } = shell("sleep 100 & echo $!; sleep 100", 0.3, &Interrupt::never()) else {
            panic!("it should have timed out");
        };
        assert!(ends(&run.stdout.first_line().unwrap()));
        assert!(run.seconds < 10.0);
    }

    #[test]
    fn what_a_tool_leaves_running_is_ended() {
        let run = finished("sleep 100 & echo $!");
        assert!(ends(&run.stdout.first_line().unwrap()));
        assert!(run.seconds < 10.0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_left_the_group_is_not_waited_for() {
        let started = Instant::now();
        let run = finished("setsid sleep 20 & echo here");
        assert_eq!(run.stdout.first_line().as_deref(), Some("here"));
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    }

    #[test]
    fn an_interrupt_ends_it() {
        let interrupt = Interrupt::never();
        let raise = interrupt.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            raise.raise();
        });
        let started = Instant::now();
        assert!(matches!(shell("sleep 100", 60.0, &interrupt), ToolRun::Interrupted));
        assert!(matches!(shell("sleep 100", 60.0, &interrupt), ToolRun::Interrupted), "not even started");
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
