//! Rules that are switched off, one at a time, so that the tests prove that they would notice. They exist only with the
//! `fault-injection` feature; without it every question is answered "no" at compile time.

/// Rules with their names, in their order.
macro_rules! named {
    ($($rule:path),* $(,)?) => { [$((stringify!($rule), $rule as _)),*] };
}

/// Every rule that can be switched off, by the name that `WEIR_FAULT` takes.
#[cfg(feature = "fault-injection")]
pub fn rules() -> Vec<&'static str> {
    let of_causes = crate::verdict::rules::OF_A_REFUSAL.iter().chain(&crate::verdict::rules::WITHOUT_REFUSAL);
    let of_fulness = crate::explain::RULES.iter().map(|(name, _)| *name);
    let mut all: Vec<&'static str> = of_causes.map(|(name, _)| *name).chain(of_fulness).chain(OTHERS).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Rules that are in no list of their own.
#[cfg(feature = "fault-injection")]
const OTHERS: [&str; 19] = [
    "nearly_full",
    "kept::models",
    "kept::of_an_iterator",
    "explain::without_model",
    "roles::read",
    "roles::kept",
    "roles::assigned",
    "roles::derived",
    "roles::early",
    "roles::data",
    "roles::recorded",
    "roles::copies",
    "roles::beyond_derivatives",
    "roles::beside_weights",
    "roles::makers",
    "roles::refused_derivative",
    "roles::transposed",
    "remedies::rest_of_the_step",
    "remedies::outside_of_training",
];

/// Whether this rule is switched off.
#[cfg(feature = "fault-injection")]
pub(crate) fn is_off(rule: &str) -> bool {
    static OFF: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    OFF.get_or_init(|| std::env::var("WEIR_FAULT").ok()).as_deref() == Some(rule)
}

/// Whether this rule is switched off: never, without the feature.
#[cfg(not(feature = "fault-injection"))]
pub(crate) const fn is_off(_: &str) -> bool {
    false
}
