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
fn quotas_in_the_table_of_the_readme_are_quotas() {
    let readme = include_str!("../README.md");
    let table = readme.split("| quota | meaning |").nth(1).and_then(|rest| rest.split_once("\n\n"));
    let (table, _) = table.expect("the table of quotas");
    // The first cell is code. A second one in the row is another spelling.
    let mut read = 0;
    for row in table.lines().filter(|row| row.starts_with("| `")) {
        for quota in row.split('`').skip(1).step_by(2).filter(|code| code.contains('/') || code.starts_with('{')) {
            let value = if quota.starts_with('{') { quota.to_owned() } else { format!("'{quota}'") };
            let rules = format!("units = ['tokens']\noverall = {value}").parse::<Rules>();
            let is_known = cfg!(feature = "calendar") || !quota.contains("Europe/");
            assert_eq!(rules.is_ok(), is_known, "{quota}: {rules:?}");
            read += 1;
        }
    }
    assert_eq!(read, 7);
}

#[test]
fn links_in_documents_lead_to_files_of_the_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = [include_str!("../README.md"), include_str!("../ARCHITECTURE.md"), include_str!("../CHANGELOG.md")];
    let mut links = 0;
    for target in documents.iter().flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split_once(')')) {
        let (target, _) = target;
        if !target.starts_with("http") {
            assert!(root.join(target).is_file(), "no file {target}");
            links += 1;
        }
    }
    assert!(links >= 12, "{links} links");
}

#[test]
fn the_readme_names_every_page_of_the_guide_and_every_preset() {
    let (root, readme) = (Path::new(env!("CARGO_MANIFEST_DIR")), include_str!("../README.md"));
    for (folder, extension) in [("src/guide", "md"), ("examples/rules", "toml")] {
        for entry in root.join(folder).read_dir().expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.extension().is_some_and(|own| own == extension) {
                let link =
                    format!("]({})", path.strip_prefix(root).expect("a path below").display()).replace('\\', "/");
                assert!(readme.contains(&link), "the README has no link {link}");
            }
        }
    }
}

#[test]
fn commands_in_the_readme_run_what_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = include_str!("../README.md");
    let scripts: BTreeSet<&str> = readme.split(['`', ' ', '\n']).filter(|word| word.starts_with("scripts/")).collect();
    assert_eq!(scripts.into_iter().collect::<Vec<_>>(), ["scripts/bench", "scripts/test"]);
    for what in ["example", "bench"] {
        let flag = if what == "example" { "--example " } else { "scripts/bench " };
        let names: BTreeSet<&str> =
            readme.split(flag).skip(1).filter_map(|rest| rest.split(['`', ' ', '\n']).next()).collect();
        assert!(!names.is_empty());
        for name in names {
            let declared = format!("[[{what}]]\nname = \"{name}\"");
            assert!(include_str!("../Cargo.toml").contains(&declared), "no {what} {name}");
        }
    }
    assert!(root.join("scripts/bench").is_file() && root.join("scripts/test").is_file());
}

#[test]
fn the_readme_names_every_feature_and_no_other() {
    let manifest = include_str!("../Cargo.toml");
    let features = manifest.split_once("[features]").and_then(|(_, rest)| rest.split_once("\n["));
    let declared: BTreeSet<&str> = features
        .expect("features")
        .0
        .lines()
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .filter(|name| !name.starts_with('#') && *name != "default")
        .collect();
    let readme = include_str!("../README.md");
    let table = readme.split("| feature | what it brings |").nth(1).and_then(|rest| rest.split_once("\n\n"));
    let named: BTreeSet<&str> =
        table.expect("the table of features").0.lines().filter_map(|row| row.split('`').nth(1)).collect();
    assert_eq!(named, declared);
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
