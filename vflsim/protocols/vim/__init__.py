"""VIM: one linear head for each client, trained by SGD or by ADMM (Xie et al. 2022)."""

from vflsim.protocols.vim.protocol import Fdml, VimAdmm, VimAdmmJ, VimSgd

__all__ = ["Fdml", "VimAdmm", "VimAdmmJ", "VimSgd"]
