//! Runs the commands that the README shows: what it says must work.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::test::Outcome;

/// The test command stands there too, and is what runs this.
const OWN: &str = "cargo xtask test";

pub(crate) fn check(root: &Path) -> Outcome {
    let text = std::fs::read_to_string(root.join("README.md"))
        .map_err(|error| format!("read README.md: {error}"))?;
    let commands = commands(&text);
    if commands.is_empty() {
        return Err("README.md shows no command".to_owned());
    }
    for command in &commands {
        println!("   {command}");
        let status = Command::new("sh")
            .args(["-c", command])
            .current_dir(root)
            .stdin(Stdio::null())
            .status()
            .map_err(|error| format!("run `{command}`: {error}"))?;
        if !status.success() {
            return Err(format!("`{command}` ended with {status}"));
        }
    }
    Ok(format!("{} commands work", commands.len()))
}

/// The lines of the blocks marked `sh`, comments left out.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if inside => {
                let command = line.split("  #").next().unwrap_or_default().trim();
                if !command.is_empty() && command != OWN {
                    found.push(command.to_owned());
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #[test]
    fn commands_are_the_lines_of_marked_blocks() {
        let text = "```rust\nlet a = 1;\n```\ntext\n```sh\necho a  # says a\n\ncargo xtask test   # all\n```\n    echo b\n";
        assert_eq!(super::commands(text), ["echo a"]);
    }
}
