//! A separate terminal screen, restored in all cases.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use console::{Key, Term};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Sequences that switch to the alternate screen without a cursor, and back (ECMA-48, and xterm's private modes).
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// Sequences that move to the first position, and clear what follows.
const HOME: &str = "\u{1b}[H";
const REST_OF_LINE: &str = "\u{1b}[K";
const REST_OF_SCREEN: &str = "\u{1b}[J";
/// The most pending keys.
const KEYS: usize = 16;

/// The alternate screen, until it is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    term: Term,
    /// The terminal that keys are read from, and its original settings: waiting for a key changes them.
    was: Option<(OwnedFd, Termios)>,
}

impl Screen {
    /// Switches to the alternate screen.
    ///
    /// # Errors
    /// When the terminal is closed.
    pub(super) fn enter() -> io::Result<Self> {
        let mut term = Term::stdout();
        let was = keyboard().and_then(|keyboard| {
            let was = tcgetattr(&keyboard).ok()?;
            Some((keyboard, was))
        });
        term.write_all(ENTER.as_bytes())?;
        term.flush()?;
        Ok(Self { term, was })
    }

    /// The number of its lines.
    pub(super) fn height(&self) -> usize {
        self.term.size().0.into()
    }

    /// Replaces the shown text, cut to the size of the screen.
    ///
    /// # Errors
    /// When the terminal is closed.
    pub(super) fn show(&mut self, text: &str) -> io::Result<()> {
        let (height, width) = self.term.size();
        self.term
            .write_all(drawn(text, height.into(), width.into()).as_bytes())?;
        self.term.flush()
    }
}

/// The output that shows a text.
fn drawn(text: &str, height: usize, width: usize) -> String {
    let mut all = HOME.to_owned();
    for (place, line) in text.lines().take(height).enumerate() {
        if place > 0 {
            all.push_str("\r\n");
        }
        all.extend(line.chars().take(width));
        all.push_str(REST_OF_LINE);
    }
    all.push_str(REST_OF_SCREEN);
    all
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.term.write_all(LEAVE.as_bytes()));
        drop(self.term.flush());
        if let Some((keyboard, was)) = &self.was {
            let _ = tcsetattr(keyboard, OptionalActions::Now, was);
        }
    }
}

/// The terminal that [`Term::read_key`] reads from: standard input if that is a terminal.
fn keyboard() -> Option<OwnedFd> {
    let input = io::stdin();
    if input.is_terminal() {
        return input.as_fd().try_clone_to_owned().ok();
    }
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty");
    terminal.ok().map(OwnedFd::from)
}

/// The pressed keys, from a thread that ends with the program or when the receiver is dropped.
pub(super) fn keys() -> mpsc::Receiver<char> {
    let (send, receive) = mpsc::channel(KEYS);
    std::thread::spawn(move || {
        let term = Term::stdout();
        while let Ok(key) = term.read_key() {
            let letter = match key {
                Key::Char(letter) => letter,
                Key::Escape => 'q',
                _ => continue,
            };
            if send.blocking_send(letter).is_err() || letter == 'q' {
                break;
            }
        }
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_the_screen_and_covers_what_was_there() {
        assert_eq!(
            drawn("one\nlonger\nthree\n", 2, 4),
            "\u{1b}[Hone\u{1b}[K\r\nlong\u{1b}[K\u{1b}[J"
        );
        assert_eq!(drawn("", 2, 4), "\u{1b}[H\u{1b}[J");
    }
}
