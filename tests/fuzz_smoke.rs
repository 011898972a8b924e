//! A few seeded bytes through what the fuzz targets do, so that it is known to work.

mod fuzz_bodies;
#[allow(dead_code, reason = "only its numbers are needed")]
#[path = "harness/rng.rs"]
mod rng;

use rng::Rng;

const LETTERS: &[u8] = b" \n\"'[]{}=/,.0129abmsx#";

fn each(times: u64, longest: u64, mut body: impl FnMut(&[u8])) {
    for seed in 0..times {
        let mut rng = Rng::new(seed);
        let length = rng.below(longest);
        let bytes: Vec<_> = (0..length).map(|_| rng.draw() as u8).collect();
        body(&bytes);
    }
}

#[test]
fn letters_are_rules_or_findings() {
    each(2_000, 200, fuzz_bodies::rules_text);
}

#[test]
fn words_are_rules_or_findings() {
    each(5_000, 60, fuzz_bodies::rules_words);
}

#[test]
fn whole_lines_are_rules_that_are_written_as_they_were_read() {
    let text = include_bytes!("../examples/rules/telegram.toml");
    fuzz_bodies::rules_text(text);
    // One letter is another.
    let mut rng = Rng::new(7);
    for _ in 0..2_000 {
        let mut text = text.to_vec();
        let place = rng.below(text.len() as u64) as usize;
        text[place] = LETTERS[rng.below(LETTERS.len() as u64) as usize];
        fuzz_bodies::rules_text(&text);
    }
}

#[test]
fn any_list_of_operations_keeps_the_machine_sound() {
    each(3_000, 2_500, fuzz_bodies::machine);
}

#[test]
fn what_a_server_says_only_narrows() {
    each(1_000, 1_200, fuzz_bodies::observed);
}

#[test]
fn nothing_is_refused_where_all_is_told() {
    each(3_000, 1_200, fuzz_bodies::told);
}

#[cfg(feature = "headers")]
#[test]
fn any_response_is_read() {
    each(20_000, 120, fuzz_bodies::headers_bytes);
    each(60_000, 60, fuzz_bodies::headers_pieces);
}
