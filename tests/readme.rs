//! The rules files in the documentation are ones that load.

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
