//! Experiments that take long even in their small form.

mod e4;
mod optimum;
