//! Documents whose commands are typed: what of a page is a file, a command or an answer, and a shell that types it.
//!
//! In a block ```` ```console ```` a line `$ COMMAND` is typed; the lines after it are what its standard output must have, in this order, with `…` for anything.
//! A command with the remark `# in a terminal of its own…` goes on running; a line `# …` is something that the test does itself.
//! A block ```` ```yaml NAME ```` is a file.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long one command may take: the first build of a language downloads its tools.
const COMMAND: Duration = Duration::from_secs(600);
/// The remark of a command that goes on running.
const OWN_TERMINAL: &str = "# in a terminal of its own";
/// Stands behind each command, with its exit code.
const MARK: &str = "--- typed:";

/// Something on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A file with what is in it.
    File(String, String),
    /// A command that goes on running.
    Running(String),
    /// A command, and the lines that its answer must have.
    Typed(String, Vec<String>),
    /// Something that the test does.
    Done(String),
}

/// The steps of a page by their headings.
#[must_use]
pub fn steps(page: &str) -> Vec<(String, Vec<Step>)> {
    let mut sections: Vec<(String, Vec<Step>)> = Vec::new();
    let mut block: Option<(String, Vec<&str>)> = None;
    for line in page.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(info)) => block = Some((info.to_owned(), Vec::new())),
            (None, None) => {
                if let Some(heading) = line.strip_prefix("## ") {
                    sections.push((heading.to_owned(), Vec::new()));
                }
            }
            (Some((info, lines)), Some(_)) => {
                if let Some((_, steps)) = sections.last_mut() {
                    steps.extend(block_steps(info, lines));
                }
                block = None;
            }
            (Some((_, lines)), None) => lines.push(line),
        }
    }
    sections
}

fn block_steps(info: &str, lines: &[&str]) -> Vec<Step> {
    if let Some((_, name)) = info.split_once(' ') {
        return vec![Step::File(name.to_owned(), lines.join("\n") + "\n")];
    }
    let mut steps = Vec::new();
    if info != "console" {
        return steps;
    }
    for line in lines {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(match command.split_once(OWN_TERMINAL) {
                Some((command, _)) => Step::Running(command.trim().to_owned()),
                None => Step::Typed(command.to_owned(), Vec::new()),
            });
        } else if let Some(done) = line.strip_prefix("# ") {
            steps.push(Step::Done(done.to_owned()));
        } else if let Some(Step::Typed(_, answer)) = steps.last_mut() {
            answer.push((*line).to_owned());
        }
    }
    steps
}

/// Whether an answer has these lines in this order.
///
/// # Errors
/// The first line that it lacks.
pub fn check(answer: &[String], expected: &[String]) -> Result<()> {
    let mut rest = answer.iter();
    for line in expected {
        ensure!(
            rest.any(|found| fits(found, line)),
            "it lacks {line:?}:\n{}",
            answer.join("\n")
        );
    }
    Ok(())
}

/// Whether a line is as a pattern says, where `…` is anything.
fn fits(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

/// A shell in a folder, as a person has it open.
#[derive(Debug)]
pub struct Shell {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    /// Opens one, with these variables beside those of this process.
    ///
    /// # Errors
    /// When there is no `bash`.
    pub fn open(folder: &Path, variables: &[(String, String)]) -> Result<Self> {
        let mut child = Command::new("bash")
            .args(["--noprofile", "--norc"])
            .current_dir(folder)
            .envs(variables.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .context("bash cannot be started")?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        Ok(Self {
            _child: child,
            input,
            output: BufReader::new(output).lines(),
        })
    }

    /// Types a command and waits for its end; the lines that it wrote to standard output.
    ///
    /// # Errors
    /// When it fails or takes too long; the message holds what it wrote.
    pub async fn type_in(&mut self, command: &str) -> Result<Vec<String>> {
        tokio::time::timeout(COMMAND, self.typed(command))
            .await
            .with_context(|| format!("{command} takes longer than {COMMAND:?}"))?
            .with_context(|| format!("typing {command}"))
    }

    async fn typed(&mut self, command: &str) -> Result<Vec<String>> {
        // Nothing of what comes next is to be read by the command; a last line without an end gets one.
        let text = format!("{{ {command}\n}} </dev/null; printf '\\n{MARK} %s\\n' $?\n");
        self.input.write_all(text.as_bytes()).await?;
        let mut lines = Vec::new();
        while let Some(line) = self.output.next_line().await? {
            if let Some(code) = line.strip_prefix(MARK) {
                let lines = lines
                    .split_last()
                    .map_or(Vec::new(), |(last, all): (&String, _)| {
                        let more = (!last.is_empty()).then(|| last.clone());
                        all.iter().cloned().chain(more).collect()
                    });
                ensure!(
                    code.trim() == "0",
                    "it ended with{code}:\n{}",
                    lines.join("\n")
                );
                return Ok(lines);
            }
            lines.push(line);
        }
        bail!("the shell ended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_files_commands_and_answers() {
        let page = "# T\n\n## One\n\n```console\n$ fdn up    # in a terminal of its own, x\n$ ls\na\nb …\n# the sun rises\n```\n\n## Two\n\n```yaml x.yaml\na: 1\n```\n\n```sh\nno\n```\n";
        let one = vec![
            Step::Running("fdn up".into()),
            Step::Typed("ls".into(), vec!["a".into(), "b …".into()]),
            Step::Done("the sun rises".into()),
        ];
        let two = vec![Step::File("x.yaml".into(), "a: 1\n".into())];
        assert_eq!(steps(page), [("One".into(), one), ("Two".into(), two)]);
    }

    #[test]
    fn nothing_in_the_tutorial_is_waited_for_without_end() {
        let page = include_str!("../../docs/tutorial.md");
        let all = steps(page);
        let typed = all
            .iter()
            .flat_map(|(_, steps)| steps)
            .filter_map(|step| match step {
                Step::Typed(command, _) => Some(command),
                _ => None,
            });
        let (waiting, others): (Vec<&String>, Vec<&String>) =
            typed.partition(|command| command.contains("until "));
        assert!(waiting.len() > 4 && others.len() > 20, "{waiting:?}");
        for command in waiting {
            assert!(command.starts_with("timeout "), "{command}");
        }
    }

    #[test]
    fn an_answer_has_its_lines_in_their_order() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let answer = lines("NAME  AGE\na     4s\nb     5m\nend");
        for good in ["", "…\nend", "NAME …\na … 4s\nb…", "a … \nend", "…5…"] {
            let good = good.replace("a … \n", "a …\n");
            assert!(check(&answer, &lines(&good)).is_ok(), "{good}");
        }
        for bad in ["b …\na …", "NAME", "…6…", "a 4s", "end\nend"] {
            assert!(check(&answer, &lines(bad)).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_shell_keeps_what_was_typed_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let variables = [("GREETING".to_owned(), "hi".to_owned())];
        let mut shell = Shell::open(folder.path(), &variables).expect("bash");
        assert_eq!(
            shell
                .type_in("x=$(printf %s $GREETING)")
                .await
                .expect("typed"),
            [""; 0]
        );
        assert_eq!(
            shell.type_in("printf '%s\\n%s' $x y").await.expect("typed"),
            ["hi", "y"]
        );
        let error = shell.type_in("echo why; false").await.expect_err("fails");
        assert!(format!("{error:#}").contains("why"), "{error:#}");
        assert_eq!(shell.type_in("cat; echo on").await.expect("typed"), ["on"]);
    }
}
