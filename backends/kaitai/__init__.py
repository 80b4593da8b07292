"""The oracle: the parser generated from spec/weig.ksy, and the rules that a .ksy cannot say."""
