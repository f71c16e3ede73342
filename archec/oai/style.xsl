<?xml version="1.0" encoding="UTF-8"?>
<!-- Shows an OAI-PMH answer in a browser. XSLT 1.0; needs nothing but this file. Only http and https become links. -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
                xmlns:o="http://www.openarchives.org/OAI/2.0/"
                xmlns:dc="http://purl.org/dc/elements/1.1/"
                xmlns:r="urn:archec:redif:1"
                exclude-result-prefixes="o dc r">
  <xsl:output method="html" encoding="UTF-8" doctype-system="about:legacy-compat"/>

  <xsl:variable name="base" select="/o:OAI-PMH/o:request"/>
  <xsl:variable name="verb" select="/o:OAI-PMH/o:request/@verb"/>
  <xsl:variable name="prefix">
    <xsl:choose>
      <xsl:when test="/o:OAI-PMH/o:request/@metadataPrefix"><xsl:value-of select="/o:OAI-PMH/o:request/@metadataPrefix"/></xsl:when>
      <xsl:otherwise>oai_dc</xsl:otherwise>
    </xsl:choose>
  </xsl:variable>

  <xsl:template match="/o:OAI-PMH">
    <html lang="en">
      <head>
        <meta name="viewport" content="width=device-width, initial-scale=1"/>
        <title><xsl:value-of select="concat($verb, ' - OAI-PMH')"/></title>
        <style>
          body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 0 1rem 3rem; color: #1c1c1c; background: #fff }
          nav { border-bottom: 1px solid #bbb; padding: .7rem 0; margin-bottom: 1.5rem }
          nav a { margin-right: 1.2rem; white-space: nowrap }
          a { color: #0a4a8f; overflow-wrap: anywhere }
          article { border: 1px solid #ccc; border-radius: 4px; padding: .6rem 1rem; margin: 1rem 0 }
          article h2 { font-size: 1.05rem; margin: 0 0 .4rem; overflow-wrap: anywhere }
          .deleted { background: #f4ecec }
          dl { display: grid; grid-template-columns: 9rem 1fr; gap: .15rem 1rem; margin: 0 }
          dt { color: #555 } dd { margin: 0; overflow-wrap: anywhere }
          pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f6; padding: .6rem; font-size: .85rem }
          table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .2rem .6rem .2rem 0; vertical-align: top; border-bottom: 1px solid #ddd }
          .error { border-left: 4px solid #a00; padding-left: 1rem }
          .more { margin: 1.5rem 0; font-size: 1.1rem }
        </style>
      </head>
      <body>
        <nav>
          <a href="{$base}?verb=Identify">About</a>
          <a href="{$base}?verb=ListSets">Sets</a>
          <a href="{$base}?verb=ListMetadataFormats">Formats</a>
          <a href="{$base}?verb=ListIdentifiers&amp;metadataPrefix=oai_dc">Identifiers</a>
          <a href="{$base}?verb=ListRecords&amp;metadataPrefix=oai_dc">Records</a>
        </nav>
        <h1><xsl:value-of select="$verb"/><xsl:if test="not($verb)">Error</xsl:if></h1>
        <xsl:apply-templates select="*[not(self::o:responseDate or self::o:request)]"/>
        <p><small>OAI-PMH 2.0, answered <xsl:value-of select="o:responseDate"/>. This page is the protocol's answer; programs read it as XML.</small></p>
      </body>
    </html>
  </xsl:template>

  <xsl:template match="o:error">
    <p class="error"><strong><xsl:value-of select="@code"/></strong>: <xsl:value-of select="."/></p>
  </xsl:template>

  <xsl:template match="o:Identify">
    <dl>
      <xsl:for-each select="*[not(self::o:description)]">
        <dt><xsl:value-of select="local-name()"/></dt><dd><xsl:call-template name="value"/></dd>
      </xsl:for-each>
      <xsl:for-each select="o:description/*">
        <dt><xsl:value-of select="local-name()"/></dt>
        <dd><xsl:for-each select=".//*[not(*)] | .//@ref"><xsl:call-template name="value"/><br/></xsl:for-each></dd>
      </xsl:for-each>
    </dl>
  </xsl:template>

  <xsl:template match="o:ListMetadataFormats">
    <table>
      <tr><th>prefix</th><th>schema</th><th>namespace</th></tr>
      <xsl:for-each select="o:metadataFormat">
        <tr>
          <td><a href="{$base}?verb=ListRecords&amp;metadataPrefix={o:metadataPrefix}"><xsl:value-of select="o:metadataPrefix"/></a></td>
          <td><xsl:for-each select="o:schema"><xsl:call-template name="value"/></xsl:for-each></td>
          <td><xsl:value-of select="o:metadataNamespace"/></td>
        </tr>
      </xsl:for-each>
    </table>
  </xsl:template>

  <xsl:template match="o:ListSets">
    <xsl:call-template name="more"/>
    <table>
      <tr><th>set</th><th>name</th></tr>
      <xsl:for-each select="o:set">
        <tr>
          <td><xsl:for-each select="o:setSpec"><xsl:call-template name="set"/></xsl:for-each></td>
          <td><xsl:value-of select="o:setName"/></td>
        </tr>
      </xsl:for-each>
    </table>
    <xsl:call-template name="more"/>
  </xsl:template>

  <xsl:template match="o:ListRecords | o:GetRecord">
    <xsl:call-template name="more"/>
    <xsl:apply-templates select="o:record"/>
    <xsl:call-template name="more"/>
  </xsl:template>

  <xsl:template match="o:ListIdentifiers">
    <xsl:call-template name="more"/>
    <xsl:for-each select="o:header"><article><xsl:call-template name="deleted"/><xsl:apply-templates select="."/></article></xsl:for-each>
    <xsl:call-template name="more"/>
  </xsl:template>

  <xsl:template match="o:record">
    <article>
      <xsl:for-each select="o:header"><xsl:call-template name="deleted"/></xsl:for-each>
      <xsl:if test="o:metadata//dc:title"><h2><xsl:value-of select="(o:metadata//dc:title)[1]"/></h2></xsl:if>
      <xsl:apply-templates select="o:header"/>
      <xsl:apply-templates select="o:metadata/*"/>
    </article>
  </xsl:template>

  <xsl:template name="deleted">
    <xsl:if test="@status"><xsl:attribute name="class"><xsl:value-of select="@status"/></xsl:attribute></xsl:if>
  </xsl:template>

  <xsl:template match="o:header">
    <dl>
      <dt>identifier</dt><dd><xsl:value-of select="o:identifier"/></dd>
      <dt>datestamp</dt><dd><xsl:value-of select="o:datestamp"/><xsl:if test="@status"> (<xsl:value-of select="@status"/>)</xsl:if></dd>
      <xsl:if test="o:setSpec">
        <dt>sets</dt><dd><xsl:for-each select="o:setSpec"><xsl:call-template name="set"/><xsl:text> </xsl:text></xsl:for-each></dd>
      </xsl:if>
      <dt>formats</dt>
      <dd>
        <xsl:variable name="id"><xsl:call-template name="escaped"><xsl:with-param name="text" select="string(o:identifier)"/></xsl:call-template></xsl:variable>
        <a href="{$base}?verb=GetRecord&amp;metadataPrefix=oai_dc&amp;identifier={$id}">oai_dc</a><xsl:text> </xsl:text>
        <a href="{$base}?verb=GetRecord&amp;metadataPrefix=redif&amp;identifier={$id}">redif</a><xsl:text> </xsl:text>
        <a href="{$base}?verb=ListMetadataFormats&amp;identifier={$id}">all</a>
      </dd>
    </dl>
  </xsl:template>

  <xsl:template match="o:metadata/*">
    <dl>
      <xsl:for-each select=".//*[not(*)]">
        <dt><xsl:value-of select="local-name()"/></dt><dd><xsl:call-template name="value"/></dd>
      </xsl:for-each>
    </dl>
  </xsl:template>

  <xsl:template match="o:metadata/r:*">
    <xsl:if test="r:template"><pre><xsl:value-of select="r:template"/></pre></xsl:if>
    <table>
      <tr><th>time</th><th>what</th><th>md5</th><th>bytes</th></tr>
      <xsl:for-each select="r:history/r:entry">
        <tr>
          <td><xsl:value-of select="@time"/></td>
          <td><xsl:value-of select="@kind"/><xsl:if test="@reason">: <xsl:value-of select="@reason"/></xsl:if></td>
          <td><xsl:value-of select="@md5"/></td><td><xsl:value-of select="@size"/></td>
        </tr>
      </xsl:for-each>
    </table>
  </xsl:template>

  <xsl:template name="more">
    <xsl:for-each select="o:resumptionToken">
      <p class="more">
        <xsl:if test="@completeListSize"><xsl:value-of select="concat(@cursor, ' given before, ', @completeListSize, ' in all. ')"/></xsl:if>
        <xsl:if test="string(.)"><a rel="next" href="{$base}?verb={$verb}&amp;resumptionToken={.}">Next page</a></xsl:if>
      </p>
    </xsl:for-each>
  </xsl:template>

  <xsl:template name="set">
    <a href="{$base}?verb=ListRecords&amp;metadataPrefix={$prefix}&amp;set={.}"><xsl:value-of select="."/></a>
  </xsl:template>

  <xsl:template name="value">
    <xsl:choose>
      <xsl:when test="starts-with(., 'http://') or starts-with(., 'https://')"><a href="{.}" rel="nofollow noreferrer"><xsl:value-of select="."/></a></xsl:when>
      <xsl:otherwise><xsl:value-of select="."/></xsl:otherwise>
    </xsl:choose>
  </xsl:template>

  <!-- What an identifier may hold and a query may not: % & + ; each as an escape of its own. -->
  <xsl:template name="escaped">
    <xsl:param name="text"/>
    <xsl:variable name="first" select="substring($text, 1, 1)"/>
    <xsl:choose>
      <xsl:when test="not(contains($text, '%') or contains($text, '&amp;') or contains($text, '+') or contains($text, ';'))"><xsl:value-of select="$text"/></xsl:when>
      <xsl:otherwise>
        <xsl:choose>
          <xsl:when test="$first = '%'">%25</xsl:when>
          <xsl:when test="$first = '&amp;'">%26</xsl:when>
          <xsl:when test="$first = '+'">%2B</xsl:when>
          <xsl:when test="$first = ';'">%3B</xsl:when>
          <xsl:otherwise><xsl:value-of select="$first"/></xsl:otherwise>
        </xsl:choose>
        <xsl:call-template name="escaped"><xsl:with-param name="text" select="substring($text, 2)"/></xsl:call-template>
      </xsl:otherwise>
    </xsl:choose>
  </xsl:template>
</xsl:stylesheet>
