//! Dialects as a file says them.

use std::fmt;

use super::{Fields, string};
use crate::engine::Nanos;
use crate::headers::{Dialect, Field, Form, Part, REQUESTS, What, WindowSpec, Word};
use crate::rules::toml::{BODIES, FORMS, MEANINGS, NONE, RESETS, SCOPES, part_name};

pub(super) fn fields(dialect: &Dialect) -> Result<Fields, fmt::Error> {
    let mut fields = Fields::default();
    let like = dialect.like.map_or(NONE, Dialect::name);
    if like != Dialect::auto().name() {
        fields.text("like", like)?;
    }
    if let Some(scope) = dialect.scope {
        fields.text("scope", word(SCOPES, scope))?;
    }
    if !dialect.refused.is_empty() {
        let statuses: Vec<_> = dialect.refused.iter().map(ToString::to_string).collect();
        fields.raw("refused", &format!("[{}]", statuses.join(", ")))?;
    }
    if dialect.full_refill {
        fields.text("reset", word(RESETS, true))?;
    }
    if dialect.any_status {
        fields.text("bodies", word(BODIES, true))?;
    }
    if let Some(header) = &dialect.named_by {
        fields.text("named_by", header)?;
    }
    let mut windows = Fields::default();
    for spec in dialect.windows.iter() {
        windows.raw(&spec.name, &window(spec)?.inline())?;
    }
    let mut waits = Fields::default();
    for wait in dialect.waits.iter() {
        waits.text(&wait.header, word(FORMS, wait.form))?;
    }
    let mut said = Fields::default();
    for by_header in dialect.words.iter() {
        said.raw(&by_header.header, &words(&by_header.words)?.inline())?;
    }
    let (mut body_waits, mut body_words) = (Fields::default(), Fields::default());
    for pick in dialect.body.iter() {
        match &pick.what {
            What::Wait { form, .. } => body_waits.text(&pick.path, word(FORMS, *form))?,
            What::Words(list) => body_words.raw(&pick.path, &words(list)?.inline())?,
            // Neither files nor code outside this crate can say them.
            What::WaitBehind { .. } | What::Count { .. } => {}
        }
    }
    let mut body = Fields::default();
    body.table("waits", &body_waits)?;
    body.table("words", &body_words)?;
    for (name, table) in [("windows", windows), ("waits", waits), ("words", said), ("body", body)] {
        fields.table(name, &table)?;
    }
    Ok(fields)
}

fn window(spec: &WindowSpec) -> Result<Fields, fmt::Error> {
    let mut fields = Fields::default();
    if spec.unit != REQUESTS {
        fields.text("unit", &spec.unit)?;
    }
    if let Some(per) = spec.per {
        fields.span("per", Nanos::from(per))?;
    }
    if let Some(scope) = spec.scope {
        fields.text("scope", word(SCOPES, scope))?;
    }
    for Field { header, part } in spec.fields.iter() {
        match part {
            Part::Reset(form) | Part::Length(form) if *form != Form::Any => {
                let mut moment = Fields::default();
                moment.text("header", header)?;
                moment.text("form", word(FORMS, *form))?;
                fields.raw(part_name(*part), &moment.inline())?;
            }
            part => fields.text(part_name(*part), header)?,
        }
    }
    Ok(fields)
}

/// By value, whose meanings stand side by side.
fn words(list: &[Word]) -> Result<Fields, fmt::Error> {
    let mut fields = Fields::default();
    for same in list.chunk_by(|a, b| a.value == b.value) {
        let meanings: Result<Vec<_>, _> = same.iter().map(|one| string(word(MEANINGS, one.meaning))).collect();
        match (meanings?.as_slice(), same.first()) {
            ([only], Some(one)) => fields.raw(&one.value, only)?,
            (several, Some(one)) => fields.raw(&one.value, &format!("[{}]", several.join(", ")))?,
            (_, None) => {}
        }
    }
    Ok(fields)
}

/// The word that a file has for `meaning`.
fn word<T: Copy + PartialEq>(words: &'static [(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|(_, known)| *known == meaning).map_or("", |(word, _)| word)
}

impl Fields {
    /// A table, if there is anything in it.
    fn table(&mut self, name: &str, table: &Self) -> fmt::Result {
        if table.list.is_empty() {
            return Ok(());
        }
        self.raw(name, &table.inline())
    }
}
