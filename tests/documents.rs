//! What the documents say is so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use request_balancer::Rules;

#[test]
fn rules_files_in_the_readme_load_without_findings() {
    let readme = include_str!("../README.md");
    let files: Vec<_> =
        readme.split("```toml\n").skip(1).filter_map(|block| Some(block.split_once("```")?.0)).collect();
    assert!(!files.is_empty(), "no rules file in the README");
    for file in files {
        match file.parse::<Rules>() {
            Ok(rules) => assert!(rules.warnings().is_empty(), "{:?}\nin\n{file}", rules.warnings()),
            Err(findings) => panic!("{findings}\nin\n{file}"),
        }
    }
}

#[test]
fn the_architecture_has_a_line_for_every_source_file_and_no_other() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    list(&sources, &sources, &mut found);
    let tree = include_str!("../ARCHITECTURE.md").split("## Tree").nth(1).unwrap_or_default();
    let named: BTreeSet<_> = tree
        .lines()
        .filter_map(|line| line.split_once("  "))
        .filter(|(path, _)| path.ends_with(".rs") && !path.starts_with("tests/") && !path.starts_with("benches/"))
        .map(|(path, _)| PathBuf::from(path))
        .collect();
    let (unnamed, gone): (Vec<_>, Vec<_>) = (found.difference(&named).collect(), named.difference(&found).collect());
    assert!(unnamed.is_empty() && gone.is_empty(), "not in ARCHITECTURE.md: {unnamed:?}; not in src: {gone:?}");
}

fn list(root: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in folder.read_dir().expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            list(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(path.strip_prefix(root).map(Path::to_path_buf));
        }
    }
}
