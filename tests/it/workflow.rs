//! `examples/github-actions.yml` calls nothing that is not there.

use clap::Parser;
use eg2_convert::cli::Cli;
use std::collections::BTreeSet;
use std::path::Path;

fn workflow() -> String {
    fs_err::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/github-actions.yml")).unwrap()
}

/// What each `run:` of the file hands to the shell, a command a line: of blocks those that are folded (`>-`) are one.
fn commands(text: &str) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().peekable();
    let mut commands = Vec::new();
    while let Some(line) = lines.next() {
        let Some(inline) = line.trim_start().trim_start_matches("- ").strip_prefix("run: ") else { continue };
        let within = indent(line);
        let mut block = Vec::new();
        while let Some(inside) = lines.next_if(|next| next.trim().is_empty() || indent(next) > within + 2) {
            block.push(inside.trim());
        }
        match inline {
            "|" => commands.extend(block.join("\n").replace("\\\n", "").lines().map(str::to_string)),
            ">-" => commands.push(block.join(" ")),
            command => {
                assert!(block.is_empty(), "{command}: {block:?}");
                commands.push(command.into());
            }
        }
    }
    commands
}

/// The words of a call, up to where its output goes, with 1 for each `${{ }}`.
fn words(command: &str) -> Vec<String> {
    let mut filled = String::new();
    let mut rest = command;
    while let Some((before, after)) = rest.split_once("${{") {
        filled.push_str(before);
        filled.push('1');
        rest = after.split_once("}}").unwrap().1;
    }
    filled.push_str(rest);
    filled.split_whitespace().take_while(|word| !word.contains(['>', '|', ';', '&'])).map(str::to_string).collect()
}

/// Whether the command line takes it, or why not; nothing is run.
fn parsed(words: &[String]) -> Result<(), String> {
    Cli::try_parse_from(words).map(|_| ()).map_err(|e| e.to_string())
}

#[test]
fn every_call_of_the_workflow_is_one() {
    let commands = commands(&workflow());
    let calls: Vec<_> = commands.iter().map(|c| words(c)).filter(|words| words[0] == "eg2-convert").collect();
    for call in &calls {
        assert_eq!(parsed(call), Ok(()), "{call:?}");
        // The check would tell: no call takes an option more.
        let twin = [&call[..], &["--no-such-option".to_string()]].concat();
        assert!(parsed(&twin).is_err(), "{twin:?}");
    }
    let called: BTreeSet<&str> = calls.iter().map(|call| call[1].as_str()).collect();
    assert_eq!(called, ["compile", "doctor", "regions", "release", "tools", "verify"].into());
    // No call is anywhere else in the file but in its comments.
    let text = workflow();
    let mentions =
        text.lines().filter(|line| !line.trim_start().starts_with('#')).map(|l| l.matches("eg2-convert ").count());
    assert_eq!(mentions.sum::<usize>(), calls.len());
}

#[test]
fn the_parts_are_as_many_as_the_matrix_has() {
    let text = workflow();
    let matrix = text.lines().find_map(|line| line.trim().strip_prefix("shard: [")?.strip_suffix(']')).unwrap();
    let parts: Vec<usize> = matrix.split(", ").map(|part| part.parse().unwrap()).collect();
    assert_eq!(parts, (1..=parts.len()).collect::<Vec<_>>());
    assert!(text.contains(&format!("--shard ${{{{ matrix.shard }}}}/{}\n", parts.len())), "{text}");
}

#[test]
fn blocks_and_continuations_are_one_call() {
    let text = "steps:\n  - run: |\n      a b \\\n        --c\n      d\n\n  - run: >-\n      e\n      --f ${{ x.y }}/2 > g\n  - run: h\n";
    assert_eq!(commands(text), ["a b --c", "d", "e --f ${{ x.y }}/2 > g", "h"]);
    assert_eq!(words("e --f ${{ x.y }}/2 > g"), ["e", "--f", "1/2"]);
}
