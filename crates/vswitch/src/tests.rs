//! The switch's rules, one by one; and against a slow model that cannot be wrong in the same way.
