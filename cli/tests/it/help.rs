//! The help of every command, as golden files.

use clap::CommandFactory as _;
use fdn_cli::args::Cli;

use crate::golden;

#[test]
fn every_commands_help_is_as_reviewed() {
    let mut root = Cli::command().term_width(100);
    root.build();
    golden::check("help.txt", &root.render_long_help().to_string());
    check_subcommands(&root, "help");
}

fn check_subcommands(parent: &clap::Command, prefix: &str) {
    for command in parent.get_subcommands() {
        if command.get_name() == "help" {
            continue;
        }
        let name = format!("{prefix}-{}", command.get_name());
        let text = command
            .clone()
            .term_width(100)
            .render_long_help()
            .to_string();
        golden::check(&format!("{name}.txt"), &text);
        check_subcommands(command, &name);
    }
}

#[test]
fn every_command_of_the_documentation_exists_and_the_other_way_round() {
    let page = include_str!("../../../docs/cli.md");
    for command in Cli::command().get_subcommands() {
        let heading = format!("## fdn {}", command.get_name());
        assert!(
            page.lines().any(|line| line == heading),
            "docs/cli.md lacks {heading:?}"
        );
    }
    for line in page.lines().filter_map(|line| line.strip_prefix("## fdn ")) {
        assert!(
            Cli::command().find_subcommand(line).is_some(),
            "docs/cli.md has {line:?}, which is no command"
        );
    }
    for line in fdn_cli::exit::TABLE.lines().skip(1) {
        let number = line.trim().split(' ').next().expect("a number");
        assert!(
            page.contains(&format!("| {number} |")),
            "docs/cli.md lacks exit code {number}"
        );
    }
}

#[test]
fn there_is_one_way_to_each_thing() {
    // A verb means the same everywhere, and no two verbs mean the same.
    const DOUBLES: [(&str, &str); 7] = [
        ("ls", "list"),
        ("get", "show"),
        ("rm", "remove"),
        ("update", "set"),
        ("new", "create"),
        ("watch", "events"),
        ("start", "up"),
    ];
    let mut found = Vec::new();
    let mut root = Cli::command();
    root.build();
    collect_names(&root, &mut found);
    for (path, name, aliases) in found {
        assert_eq!(aliases, 0, "{path} {name} has a second name");
        // `fdn new` creates a folder on this machine; things in the network are made with `create`.
        if path == "fdn" && name == "new" {
            continue;
        }
        let double = DOUBLES.iter().find(|(double, _)| *double == name);
        assert_eq!(double, None, "{path} {name}");
    }
}

fn collect_names(parent: &clap::Command, found: &mut Vec<(String, String, usize)>) {
    for command in parent.get_subcommands() {
        let (path, name) = (parent.get_name(), command.get_name());
        if name == "help" {
            continue;
        }
        found.push((
            path.to_owned(),
            name.to_owned(),
            command.get_all_aliases().count(),
        ));
        collect_names(command, found);
    }
}

#[test]
fn flags_of_every_command_stand_in_the_documentation() {
    let mut missing = Vec::new();
    collect_undocumented(&Cli::command(), &mut missing);
    assert!(missing.is_empty(), "docs/cli.md lacks {missing:?}");
}

fn collect_undocumented(parent: &clap::Command, missing: &mut Vec<String>) {
    let page = include_str!("../../../docs/cli.md");
    for command in parent.get_subcommands() {
        for flag in command.get_arguments().filter_map(|a| a.get_long()) {
            if !page.contains(&format!("--{flag}")) {
                missing.push(format!("--{flag} of {}", command.get_name()));
            }
        }
        collect_undocumented(command, missing);
    }
}
