//! A body for every driver function, which answers that it is not supported and counts the call.
//! `api` puts its own bodies before these.
#![allow(non_snake_case, unused_variables, clippy::too_many_arguments, clippy::missing_const_for_fn)]

use crate::error::{NOT_SUPPORTED, R};
use weir_cuda::*;

macro_rules! stub {
    ($($symbol:ident of $base:ident = $name:literal $version:literal $variant:ident ($($arg:ident : $ty:ty),*);)*) => {
        $(
            #[allow(dead_code)]
            pub(crate) unsafe fn $symbol($($arg: $ty),*) -> R {
                refuse(stringify!($symbol))
            }
        )*
    };
}
driver_functions!(stub);

fn refuse(symbol: &str) -> R {
    if let Some(index) = FUNCTIONS.iter().position(|f| f.symbol == symbol) {
        crate::call::not_supported(index);
    }
    Err(NOT_SUPPORTED)
}
