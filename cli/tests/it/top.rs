//! `fdn top` on a terminal, which util-linux's `script` provides.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fdn_testkit::wait;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::support::{Fake, Home, Reply};

/// Starts the command on a new terminal; its output is in the file `screen`, and the final settings of the terminal in `after`.
fn start(home: &Home, fake: &Fake) -> Child {
    let inner = "sh -c 'echo $$ >pid; exec \"$FDN\" top --interval 500ms </dev/null'; stty -a </dev/tty >after";
    let screen = std::fs::File::create(home.folder.path().join("screen")).expect("made");
    Command::new("script")
        .args(["--quiet", "--flush", "--command", inner, "/dev/null"])
        .current_dir(home.folder.path())
        .env("FDN", env!("CARGO_BIN_EXE_fdn"))
        .env("HOME", home.folder.path())
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env("FDN_CONTROLLER", fake.url())
        .env("FDN_TOKEN_FILE", home.file("token", "secret-token"))
        .stdin(Stdio::piped())
        .stdout(screen)
        .kill_on_drop(true)
        .spawn()
        .expect("script starts")
}

/// An empty controller, which stops answering once `silent` is set.
async fn controller(silent: &Arc<AtomicBool>) -> Fake {
    let silent = Arc::clone(silent);
    Fake::start(move |_, _| {
        if silent.load(Ordering::SeqCst) {
            return Reply::Silence;
        }
        Reply::problem(fdn_core::ErrorCode::Forbidden, "not yours")
    })
    .await
}

/// Waits until the table is shown and a further request is pending without an answer.
async fn shown(home: &Home, fake: &Fake, silent: &AtomicBool) {
    wait::until("the first screen", async || {
        let screen = home.read("screen");
        if screen.contains("q: end") {
            Ok(())
        } else {
            Err(screen)
        }
    })
    .await;
    silent.store(true, Ordering::SeqCst);
    // One round of earlier requests may still be answered.
    let before = fake.requests().len();
    wait::until("another round", async || {
        let asked = fake.requests().len();
        if asked > before + 2 {
            Ok(())
        } else {
            Err(asked)
        }
    })
    .await;
}

/// Waits for the end; returns the final settings of the terminal.
async fn left(home: &Home, mut child: Child) -> String {
    wait::until("fdn top to end", async || match child.try_wait() {
        Ok(Some(_)) => Ok(()),
        other => Err(format!("{other:?}: {}", home.read("screen"))),
    })
    .await;
    let screen = home.read("screen");
    assert!(
        screen.contains("\u{1b}[?1049l"),
        "the screen is given back: {screen:?}"
    );
    home.read("after")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_heard_while_the_controller_is_silent_and_the_terminal_is_as_it_was() {
    let silent = Arc::new(AtomicBool::new(false));
    let fake = controller(&silent).await;
    let home = Home::new();
    let mut child = start(&home, &fake);
    shown(&home, &fake, &silent).await;
    let mut keys = child.stdin.take().expect("keys");
    keys.write_all(b"q").await.expect("pressed");
    let after = left(&home, child).await;
    for mode in [" icanon ", " echo "] {
        assert!(after.contains(mode), "{mode}: {after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_heard_while_the_controller_is_silent() {
    let silent = Arc::new(AtomicBool::new(false));
    let fake = controller(&silent).await;
    let home = Home::new();
    let mut child = start(&home, &fake);
    let keys = child.stdin.take();
    shown(&home, &fake, &silent).await;
    let pid = home.read("pid").trim().parse().expect("a process");
    kill_process(Pid::from_raw(pid).expect("an id"), Signal::TERM).expect("sent");
    let after = left(&home, child).await;
    drop(keys);
    for mode in [" icanon ", " echo "] {
        assert!(after.contains(mode), "{mode}: {after}");
    }
}
